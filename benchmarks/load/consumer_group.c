/* A server-side group of many members, again and again: all of them join at once, then the last one leaves and joins
 * again.
 *
 * Measured is the time from the first heartbeat of a change until every member is in one epoch and was given its share:
 * together they have all partitions, and none has two more than another. Members speak every few milliseconds, far more
 * often than a client would, so that it is the broker's pace and not the heartbeat interval that is measured.
 *
 * Before one leaves or joins, all members have confirmed what they hold, and their heartbeats are spread evenly over the
 * pause, as those of unrelated clients are. Otherwise the figure depends on when they spoke last, in the change before:
 * members of a broker that was fast have just spoken and would be silent for the whole pause. */
#include <stdio.h>
#include <stdlib.h>

#include "coordinator.h"
#include "group_requests.h"
#include "load.h"
#include "peer.h"

enum { PAUSE_MS = 5, OWNERS_MAX = 256, PATIENCE_S = 60, LEAVE_EPOCH = -1 };

struct consumer {
    struct peer peer;
    const char *group, *topic;
    char id[ID_BYTES_MAX];
    int epoch;
    bool is_waiting;   /* for an answer */
    bool must_confirm; /* that it holds what it was last assigned */
    int64_t due_ns;
    struct held_partitions held;
};

struct group {
    const struct options *options;
    struct consumer *consumers;
    int epoll, wanted;
    int64_t heartbeats;
};

static void speak(struct group *group, struct consumer *consumer) {
    bool confirms = consumer->must_confirm;
    put_consumer_heartbeat(&consumer->peer.request, consumer->group, consumer->id, consumer->epoch, consumer->topic,
        confirms ? &consumer->held : NULL);
    consumer->must_confirm = false;
    consumer->is_waiting = true;
    consumer->due_ns = now_ns() + PAUSE_MS * (int64_t)1000000;
    group->heartbeats++;
    send_request(&consumer->peer);
}

static void on_heartbeat_answers(struct consumer *consumer) {
    struct reader in;
    receive_more(&consumer->peer);
    while (take_answer(&consumer->peer, &in)) {
        struct consumer_answer answer = take_consumer_heartbeat(&in, &consumer->held);
        consumer->is_waiting = false;
        if (is_coordinator_starting(answer.error)) continue;
        if (answer.error != NO_ERROR) fail("a ConsumerGroupHeartbeat request was answered with error %d", answer.error);
        consumer->epoch = answer.epoch;
        if (answer.has_assignment) consumer->must_confirm = true;
    }
}

/* Whether every member is where it should be in the end. */
static bool is_settled(const struct group *group) {
    int share = group->options->partitions / group->wanted, held = 0, epoch = group->consumers[0].epoch;
    for (int at = 0; at < group->wanted; at++) {
        const struct consumer *consumer = &group->consumers[at];
        if (consumer->epoch != epoch) return false;
        if (consumer->held.count < share || consumer->held.count > share + 1) return false;
        held += consumer->held.count;
    }
    return epoch > 0 && held == group->options->partitions;
}

static double settle(struct group *group, int64_t start) {
    void *owners[OWNERS_MAX];
    while (!is_settled(group)) {
        int64_t now = now_ns();
        if (now - start > PATIENCE_S * (int64_t)1000000000) fail("the group is not settled after %d s", PATIENCE_S);
        for (int at = 0; at < group->wanted; at++) {
            struct consumer *consumer = &group->consumers[at];
            if (!consumer->is_waiting && now >= consumer->due_ns) speak(group, consumer);
        }
        int ready = wait_peers(group->epoll, owners, OWNERS_MAX, 1);
        for (int at = 0; at < ready; at++) on_heartbeat_answers(owners[at]);
    }
    return (double)(now_ns() - start) / 1e9;
}

/* Ends what is left of the last change. */
static void rest(struct group *group) {
    void *owners[OWNERS_MAX];
    for (bool is_quiet = false; !is_quiet;) {
        is_quiet = true;
        for (int at = 0; at < group->wanted; at++) {
            struct consumer *consumer = &group->consumers[at];
            if (consumer->must_confirm && !consumer->is_waiting) speak(group, consumer);
            if (consumer->is_waiting) is_quiet = false;
        }
        int ready = wait_peers(group->epoll, owners, OWNERS_MAX, 1);
        for (int at = 0; at < ready; at++) on_heartbeat_answers(owners[at]);
    }
    int64_t now = now_ns();
    for (int at = 0; at < group->wanted; at++) {
        group->consumers[at].due_ns = now + PAUSE_MS * (int64_t)1000000 * at / group->wanted;
    }
}

static double join_from(struct group *group, int first) {
    if (first > 0) rest(group);
    int64_t start = now_ns();
    group->wanted = group->options->members;
    for (int at = first; at < group->wanted; at++) speak(group, &group->consumers[at]);
    return settle(group, start);
}

/* What a member that is about to leave still waits for, then its leaving, and its new beginning. */
static void leave(struct group *group, struct consumer *consumer) {
    while (consumer->is_waiting) on_heartbeat_answers(consumer);
    consumer->epoch = LEAVE_EPOCH;
    consumer->must_confirm = false;
    speak(group, consumer);
}

static void forget(struct consumer *consumer) {
    while (consumer->is_waiting) on_heartbeat_answers(consumer);
    consumer->epoch = 0;
    consumer->must_confirm = false;
    consumer->held.count = 0;
}

static double leave_by_last(struct group *group) {
    rest(group);
    int64_t start = now_ns();
    group->wanted = group->options->members - 1;
    leave(group, &group->consumers[group->wanted]);
    double seconds = settle(group, start);
    forget(&group->consumers[group->wanted]);
    return seconds;
}

static void leave_by_all(struct group *group) {
    for (int at = 0; at < group->wanted; at++) leave(group, &group->consumers[at]);
    for (int at = 0; at < group->wanted; at++) forget(&group->consumers[at]);
}

static void start_consumer(struct group *group, int number, const char *name) {
    struct consumer *consumer = &group->consumers[number];
    consumer->group = name;
    consumer->topic = group->options->topic;
    put_name(consumer->id, sizeof consumer->id, group->options, 1000 + number);
    open_peer(group->options, &consumer->peer, group->epoll, consumer);
}

void run_consumer_group(const struct options *options) {
    char name[ID_BYTES_MAX];
    struct group group = {.options = options, .epoll = new_epoll()};
    double *formed = calloc((size_t)options->repeats, sizeof *formed);
    double *left = calloc((size_t)options->repeats, sizeof *left);
    double *joined = calloc((size_t)options->repeats, sizeof *joined);
    group.consumers = calloc((size_t)options->members, sizeof *group.consumers);
    put_name(name, sizeof name, options, 0);
    await_coordinator(options, GROUP_KEY_TYPE, name);
    for (int at = 0; at < options->members; at++) start_consumer(&group, at, name);
    double used = cpu_seconds();
    for (int at = 0; at < options->repeats; at++) {
        formed[at] = join_from(&group, 0);
        left[at] = leave_by_last(&group);
        joined[at] = join_from(&group, options->members - 1);
        leave_by_all(&group);
    }
    printf("{\"repeats\": %d, \"formed_ms\": %.3f, \"left_ms\": %.3f, \"joined_ms\": %.3f, \"heartbeats\": %lld, \"client_cpu_s\": %.6f}\n",
        options->repeats, 1e3 * median(formed, options->repeats), 1e3 * median(left, options->repeats),
        1e3 * median(joined, options->repeats), (long long)group.heartbeats, cpu_seconds() - used);
}
