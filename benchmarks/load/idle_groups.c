/* Many groups with one member each, which does nothing but live: a heartbeat every three seconds, the Java client's
 * interval, spread evenly.
 *
 * Prints a line when every member is settled: from now on it is worth looking at what the broker uses. After so many
 * seconds it prints how many heartbeats there were, and all leave. */
#include <stdio.h>
#include <stdlib.h>

#include "classic_member.h"
#include "coordinator.h"
#include "load.h"

enum { INTERVAL_MS = 3000, OWNERS_MAX = 256, TOGETHER = 32, PATIENCE_S = 60 };

struct crowd {
    const struct options *options;
    struct classic_member *members;
    int count, epoll;
    int64_t beats;
};

static void serve(struct crowd *crowd, int timeout_ms) {
    void *owners[OWNERS_MAX];
    int ready = wait_peers(crowd->epoll, owners, OWNERS_MAX, timeout_ms);
    for (int at = 0; at < ready; at++) on_answers(owners[at]);
}

static void enter(struct crowd *crowd, struct classic_member *member) {
    open_peer(crowd->options, &member->peer, crowd->epoll, member);
    join(member);
}

static void go(struct crowd *crowd, struct classic_member *member) {
    (void)crowd;
    leave(member);
}

/* All of them do the same, some at a time, until each is at `goal`. More at a time would overflow a listener's backlog,
 * and the kernel would try again only after a second. */
static void all_do(struct crowd *crowd, void (*act)(struct crowd *, struct classic_member *), enum classic_step goal) {
    int64_t deadline = now_ns() + PATIENCE_S * (int64_t)1000000000;
    for (int first = 0; first < crowd->count; first += TOGETHER) {
        int end = first + TOGETHER < crowd->count ? first + TOGETHER : crowd->count;
        for (int at = first; at < end; at++) act(crowd, &crowd->members[at]);
        for (int at = first; at < end;) {
            if (crowd->members[at].step == goal) at++;
            else serve(crowd, 10);
            if (now_ns() > deadline) fail("group %d of %d did not get where it should", at, crowd->count);
        }
    }
}

static void beat_until(struct crowd *crowd, int64_t end) {
    while (now_ns() < end) {
        serve(crowd, 2);
        int64_t now = now_ns();
        for (int at = 0; at < crowd->count; at++) {
            struct classic_member *member = &crowd->members[at];
            if (member->step != SETTLED || now < member->due_ns) continue;
            member->due_ns += INTERVAL_MS * (int64_t)1000000;
            beat(member);
            crowd->beats++;
        }
    }
}

void run_idle_groups(const struct options *options) {
    struct writer subscription = new_subscription(options->topic);
    struct crowd crowd = {.options = options, .count = options->groups, .epoll = new_epoll()};
    crowd.members = calloc((size_t)crowd.count, sizeof *crowd.members);
    char(*names)[ID_BYTES_MAX] = calloc((size_t)crowd.count, sizeof *names);
    if (crowd.members == NULL || names == NULL) fail("no memory for %d groups", crowd.count);
    for (int at = 0; at < crowd.count; at++) {
        struct classic_member *member = &crowd.members[at];
        put_name(names[at], sizeof names[at], options, at);
        member->group = names[at];
        member->topic = options->topic;
        member->subscription = &subscription;
        if (at == 0) await_coordinator(options, GROUP_KEY_TYPE, names[at]);
    }
    all_do(&crowd, enter, SETTLED);
    int64_t start = now_ns();
    for (int at = 0; at < crowd.count; at++) {
        crowd.members[at].due_ns = start + at * (INTERVAL_MS * (int64_t)1000000 / crowd.count);
    }
    printf("{\"ready\": %d}\n", crowd.count);
    fflush(stdout);
    beat_until(&crowd, start + options->seconds * (int64_t)1000000000);
    for (int at = 0; at < crowd.count;) {
        if (crowd.members[at].step == SETTLED) at++;
        else serve(&crowd, 10);
    }
    printf("{\"beats\": %lld}\n", (long long)crowd.beats);
    fflush(stdout);
    all_do(&crowd, go, OUTSIDE);
}
