/* How soon a dead member's records reach another one, again and again.
 *
 * One batch is produced, the first member acquires it and its connection ends as if its process had died, while the
 * second member waits in a fetch, and in another one whenever that ends without records. Measured is the time from the
 * end of the connection until the second member has the records, with a delivery count of 2; it then accepts them. The
 * deaths are spread over the time that a fetch waits, which is the Java client's default. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "load.h"
#include "share_member.h"

enum { PATIENCE_S = 60, WAIT_MS = 500, PARKED_AFTER_MS = 20, PARKED_SPREAD_MS = 400, PARKED_STEP_MS = 147, SECOND_DELIVERY = 2 };

static void produce_batch(const struct options *options, int socket) {
    static uint8_t *answer;
    static size_t capacity;
    struct writer batch = new_batch(options->batch_records, (size_t)options->record_bytes, wall_ms());
    struct writer frame = new_produce(options->produce_version, options->acks, NULL, options->topic, 0, &batch, NULL);
    send_all(socket, frame.data, frame.size);
    size_t size = receive_frame(socket, &answer, &capacity);
    int error = size == 0 ? UNREADABLE : read_produce(answer, size);
    if (error != NO_ERROR) fail("a Produce request was answered with error %d", error);
    free(batch.data);
    free(frame.data);
}

static void await_records(struct share_group *group, struct share_member *member, int epoll) {
    int64_t bytes = 0;
    do {
        send_share_fetch(group, member, WAIT_MS);
        struct reader in = await_answer(&member->peer, epoll);
        if (on_share_fetched(member, &in, &bytes) > 0) return;
    } while (true);
}

static void accept_all(struct share_group *group, struct share_member *member, int epoll) {
    send_share_acknowledge(group, member, &member->acquired);
    struct reader in = await_answer(&member->peer, epoll);
    int error = take_share_acknowledge(&in);
    if (error != NO_ERROR) fail("a ShareAcknowledge request was answered with error %d", error);
    member->acquired.count = 0;
}

/* Seconds from the death of the first member to the second's answer. */
static double die_and_redeliver(struct share_group *group, int number, int producer, int first_epoll, int second_epoll) {
    const int parked_ms = PARKED_AFTER_MS + number * PARKED_STEP_MS % PARKED_SPREAD_MS;
    const struct timespec pause = {.tv_nsec = (long)parked_ms * 1000000};
    struct share_member *first = &group->members[0], *second = &group->members[1];
    int64_t bytes = 0, records;
    open_share_member(group, first, first_epoll);
    produce_batch(group->options, producer);
    await_records(group, first, first_epoll);
    send_share_fetch(group, second, WAIT_MS);
    nanosleep(&pause, NULL);
    int64_t start = now_ns();
    close_peer(&first->peer);
    struct reader in = await_answer(&second->peer, second_epoll);
    while ((records = on_share_fetched(second, &in, &bytes)) == 0) {
        if (now_ns() - start > PATIENCE_S * (int64_t)1000000000) fail("no redelivery after %d s", PATIENCE_S);
        send_share_fetch(group, second, WAIT_MS);
        in = await_answer(&second->peer, second_epoll);
    }
    double seconds = (double)(now_ns() - start) / 1e9;
    if (records != group->options->batch_records) fail("%lld records were delivered again", (long long)records);
    if (second->acquired.items[0].delivery_count != SECOND_DELIVERY)
        fail("the delivery count is %d", second->acquired.items[0].delivery_count);
    accept_all(group, second, second_epoll);
    return seconds;
}

void run_share_redelivery(const struct options *options) {
    struct share_group group;
    form_share_group(&group, options);
    double *times = calloc((size_t)options->repeats, sizeof *times);
    if (times == NULL) fail("no memory for %d times", options->repeats);
    int producer = connect_to(options, 0), first_epoll = new_epoll(), second_epoll = new_epoll();
    struct share_member *second = &group.members[1];
    open_share_member(&group, second, second_epoll);
    send_share_fetch(&group, second, 0);
    int64_t bytes = 0;
    struct reader in = await_answer(&second->peer, second_epoll);
    if (on_share_fetched(second, &in, &bytes) > 0) fail("the topic has records already");
    for (int at = 0; at < options->repeats; at++) {
        times[at] = die_and_redeliver(&group, at, producer, first_epoll, second_epoll);
        keep_share_group(&group);
    }
    leave_share_group(&group);
    printf("{\"repeats\": %d, \"redelivered_ms\": %.3f}\n", options->repeats, 1e3 * median(times, options->repeats));
}
