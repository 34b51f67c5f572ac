/* End-to-end latency: one record per Produce request at a steady rate, read back by a long-polling Fetch loop in the
 * same process, so that one clock stamps both ends. Each record carries the instant it was due, not the instant it left:
 * a broker that stalls pays for every record that had to wait. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "load.h"
#include "requests.h"

enum { WAIT_MS = 500, WARM_UP_S = 2 };

struct meeting {
    const struct options *options;
    int64_t expected;
    int64_t seen;
    double *latencies_us; /* of the records after the warm-up */
    int64_t measured, measured_max;
    int64_t start_ns, measure_from_ns;
};

static void note_latency(const uint8_t *batch, size_t size, void *state) {
    struct meeting *meeting = state;
    size_t value_at = first_value_at((size_t)meeting->options->record_bytes);
    if (size < value_at + 8) fail("a batch of %zu bytes is none of ours", size);
    int64_t due = load_number(batch + value_at, 8);
    if (due < meeting->start_ns) return; /* left in the topic by an earlier run */
    meeting->seen++;
    if (due >= meeting->measure_from_ns && meeting->measured < meeting->measured_max) {
        meeting->latencies_us[meeting->measured++] = (double)(now_ns() - due) / 1e3;
    }
}

static void *read_back(void *state) {
    struct meeting *meeting = state;
    struct position position = {0};
    struct writer request = {0};
    uint8_t *buffer = NULL;
    size_t capacity = 0;
    int socket = connect_to(meeting->options, 0);
    while (meeting->seen < meeting->expected) {
        put_fetch(&request, meeting->options->topic, &position, 1, meeting->options->partition_bytes_max, WAIT_MS);
        send_all(socket, request.data, request.size);
        size_t size = receive_frame(socket, &buffer, &capacity);
        if (size == 0) fail("the broker closed the connection in the middle of a fetch");
        struct fetched found = read_fetch(buffer, size, &position, 1, note_latency, meeting);
        if (found.error != 0) fail("a Fetch request was answered with error %d", found.error);
    }
    return NULL;
}

/* Reads the answers that have come, without waiting, and checks them. */
static void drain_answers(int socket, uint8_t *buffer, size_t capacity, size_t *have) {
    ssize_t got = recv(socket, buffer + *have, capacity - *have, MSG_DONTWAIT);
    if (got == 0) fail("the broker closed the connection");
    if (got < 0) return;
    *have += (size_t)got;
    size_t at = 0;
    while (*have - at >= 4 && *have - at >= 4 + (size_t)load_number(buffer + at, 4)) {
        size_t size = (size_t)load_number(buffer + at, 4);
        int error = read_produce(buffer + at + 4, size);
        if (error != 0) fail("a Produce request was answered with error %d", error);
        at += 4 + size;
    }
    memmove(buffer, buffer + at, *have - at);
    *have -= at;
}

static void send_at_rate(const struct meeting *meeting, int64_t start) {
    const struct options *options = meeting->options;
    struct writer batch = new_batch(1, (size_t)options->record_bytes, wall_ms());
    size_t batch_at, value_at = first_value_at((size_t)options->record_bytes);
    struct writer frame = new_produce(options->produce_version, options->acks, NULL, options->topic, 0, &batch, &batch_at);
    uint8_t answers[1 << 16];
    size_t have = 0;
    int socket = connect_to(options, 0);
    for (int64_t number = 0; number < meeting->expected; number++) {
        int64_t due = start + number * (1000000000 / options->rate);
        struct timespec until = {.tv_sec = due / 1000000000, .tv_nsec = due % 1000000000};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) continue;
        store_number(frame.data + batch_at + value_at, (uint64_t)due, 8);
        seal_batch(frame.data + batch_at, batch.size);
        send_all(socket, frame.data, frame.size);
        drain_answers(socket, answers, sizeof answers, &have);
    }
}

void run_latency(const struct options *options) {
    int64_t start = now_ns() + 10000000;
    struct meeting meeting = {
        .options = options,
        .expected = (int64_t)options->rate * (options->seconds + WARM_UP_S),
        .measured_max = (int64_t)options->rate * options->seconds,
        .start_ns = start,
        .measure_from_ns = start + WARM_UP_S * (int64_t)1000000000,
    };
    meeting.latencies_us = calloc((size_t)meeting.measured_max, sizeof *meeting.latencies_us);
    pthread_t reader;
    if (pthread_create(&reader, NULL, read_back, &meeting) != 0) fail("no thread");
    send_at_rate(&meeting, start);
    pthread_join(reader, NULL);
    if (meeting.measured == 0) fail("no record came back");
    double middle = median(meeting.latencies_us, (int)meeting.measured);
    printf("{\"records\": %lld, \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f}\n", (long long)meeting.measured,
        middle, meeting.latencies_us[meeting.measured * 99 / 100],
        meeting.latencies_us[meeting.measured * 999 / 1000]);
}
