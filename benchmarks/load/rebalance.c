/* A classic group of many members, again and again: all of them join at once, then the last one leaves and joins again.
 *
 * Measured is the time from the first request of a change until every member has its assignment in one generation.
 * Members ask by heartbeats whether the group rebalances only while a change is on its way, every millisecond, so that
 * neither a client's heartbeat interval nor a client's work is measured. */
#include <stdio.h>
#include <stdlib.h>

#include "classic_member.h"
#include "coordinator.h"
#include "load.h"

enum { PAUSE_MS = 1, OWNERS_MAX = 256, PATIENCE_S = 60 };

struct group {
    const struct options *options;
    struct classic_member *members;
    int epoll, wanted;
    int whole_generation; /* in which as many members as are wanted take part, by its leader's word */
};

static bool is_home(const struct group *group, const struct classic_member *member) {
    return member->step == SETTLED && member->generation == group->whole_generation;
}

/* Who is settled in a generation that is not whole asks whether there is a new one. */
static int beat_where_due(struct group *group) {
    int home = 0;
    int64_t now = now_ns();
    for (int at = 0; at < group->wanted; at++) {
        struct classic_member *member = &group->members[at];
        if (is_home(group, member)) {
            home++;
        } else if (member->step == SETTLED && now >= member->due_ns) {
            member->due_ns = now + PAUSE_MS * (int64_t)1000000;
            beat(member);
        }
    }
    return home;
}

static void note_generation(struct group *group, const struct classic_member *member) {
    if (member->generation_size == group->wanted) group->whole_generation = member->generation;
}

/* Seconds until all are home in one generation that is newer than what was whole before. */
static double settle(struct group *group, int64_t start) {
    void *owners[OWNERS_MAX];
    group->whole_generation = -1;
    for (int at = 0; at < group->wanted; at++) group->members[at].generation_size = 0;
    while (beat_where_due(group) < group->wanted) {
        if (now_ns() - start > PATIENCE_S * (int64_t)1000000000) fail("the group is not settled after %d s", PATIENCE_S);
        int ready = wait_peers(group->epoll, owners, OWNERS_MAX, PAUSE_MS);
        for (int at = 0; at < ready; at++) {
            on_answers(owners[at]);
            note_generation(group, owners[at]);
        }
    }
    return (double)(now_ns() - start) / 1e9;
}

static double join_from(struct group *group, int first) {
    int64_t start = now_ns();
    group->wanted = group->options->members;
    for (int at = first; at < group->wanted; at++) join(&group->members[at]);
    return settle(group, start);
}

static double leave_by_last(struct group *group) {
    int64_t start = now_ns();
    struct classic_member *last = &group->members[group->options->members - 1];
    group->wanted = group->options->members - 1;
    leave(last);
    double seconds = settle(group, start);
    while (last->step == LEAVING) on_answers(last);
    return seconds;
}

static void leave_by_all(struct group *group) {
    for (int at = 0; at < group->wanted; at++) leave(&group->members[at]);
    for (int at = 0; at < group->wanted; at++) {
        while (group->members[at].step != OUTSIDE) on_answers(&group->members[at]);
    }
}

void run_rebalance(const struct options *options) {
    char name[ID_BYTES_MAX];
    struct writer subscription = new_subscription(options->topic);
    struct group group = {.options = options, .epoll = new_epoll()};
    double *formed = calloc((size_t)options->repeats, sizeof *formed);
    double *left = calloc((size_t)options->repeats, sizeof *left);
    double *joined = calloc((size_t)options->repeats, sizeof *joined);
    group.members = calloc((size_t)options->members, sizeof *group.members);
    put_name(name, sizeof name, options, 0);
    await_coordinator(options, GROUP_KEY_TYPE, name);
    for (int at = 0; at < options->members; at++) {
        struct classic_member *member = &group.members[at];
        member->group = name;
        member->topic = options->topic;
        member->subscription = &subscription;
        open_peer(options, &member->peer, group.epoll, member);
    }
    double used = cpu_seconds();
    for (int at = 0; at < options->repeats; at++) {
        formed[at] = join_from(&group, 0);
        left[at] = leave_by_last(&group);
        joined[at] = join_from(&group, options->members - 1);
        leave_by_all(&group);
    }
    printf("{\"repeats\": %d, \"formed_ms\": %.3f, \"left_ms\": %.3f, \"joined_ms\": %.3f, \"client_cpu_s\": %.6f}\n",
        options->repeats, 1e3 * median(formed, options->repeats), 1e3 * median(left, options->repeats),
        1e3 * median(joined, options->repeats), cpu_seconds() - used);
}
