/* Produce requests, pipelined, in turn over the partitions. Also `first`: knocks until the first record is taken, which
 * is when a starting broker serves. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "load.h"
#include "pipeline.h"
#include "requests.h"

void run_produce(const struct options *options) {
    struct writer batch = new_batch(options->batch_records, (size_t)options->record_bytes, wall_ms());
    struct writer *frames = calloc((size_t)options->partitions, sizeof *frames);
    if (frames == NULL) fail("no memory for %d frames", options->partitions);
    for (int partition = 0; partition < options->partitions; partition++) {
        frames[partition] =
            new_produce(options->produce_version, options->acks, NULL, options->topic, partition, &batch, NULL);
    }
    struct pipelined done = run_pipeline(options, frames, options->partitions, read_produce, "a Produce request");
    printf("{\"seconds\": %.6f, \"requests\": %lld, \"records\": %lld, \"bytes\": %lld, \"client_cpu_s\": %.6f}\n",
        done.seconds, (long long)options->requests, (long long)options->requests * options->batch_records,
        (long long)options->requests * (long long)batch.size, done.client_cpu_s);
}

/* Prints the moment, on the monotonic clock, at which the broker first took a record. */
void run_first(const struct options *options) {
    struct writer batch = new_batch(1, (size_t)options->record_bytes, wall_ms());
    struct writer frame = new_produce(options->produce_version, options->acks, NULL, options->topic, 0, &batch, NULL);
    const struct timespec pause = {.tv_nsec = 1000000};
    uint8_t *buffer = NULL;
    size_t capacity = 0;
    int socket = -1, tries = 0;
    for (int64_t deadline = now_ns() + (int64_t)options->seconds * 1000000000; now_ns() < deadline; tries++) {
        if (socket < 0) socket = connect_to(options, 1);
        if (socket >= 0) {
            send_all(socket, frame.data, frame.size);
            size_t size = receive_frame(socket, &buffer, &capacity);
            if (size > 0 && read_produce(buffer, size) == 0) {
                printf("{\"at_s\": %.6f, \"tries\": %d}\n", (double)now_ns() / 1e9, tries + 1);
                return;
            }
            if (size == 0) {
                close(socket);
                socket = -1;
            }
        }
        nanosleep(&pause, NULL);
    }
    fail("no record was taken within %d s, after %d tries", options->seconds, tries);
}
