/* Transactions one after another for some seconds, by some producers at once, each with a connection and a transactional id of its own.
 *
 * A transaction is so many batches for one partition, all of them on their way at once, and a commit. As the clients
 * do, a producer that is told CONCURRENT_TRANSACTIONS tries again, but after a millisecond instead of the clients' 20. */
#include <stdio.h>
#include <stdlib.h>

#include "coordinator.h"
#include "load.h"
#include "peer.h"
#include "transaction_requests.h"

enum { PAUSE_MS = 1, OWNERS_MAX = 256, SILENCE_MAX_S = 60, PRODUCE_VERSION_1 = 11, PRODUCE_VERSION_2 = 12 };

enum step { STARTING, ADDING, PRODUCING, ENDING, RESTING };

struct producer {
    struct peer peer;
    enum step step, resumes; /* resumes: what is tried again after a rest */
    char transactional_id[ID_BYTES_MAX];
    struct producer_id id;
    int32_t sequence;
    int partition, unanswered, refused;
    int64_t due_ns;
    struct writer frame; /* a Produce request, stamped anew for each batch */
    size_t batch_at;
};

struct run {
    const struct options *options;
    struct producer *producers;
    int epoll;
    size_t batch_bytes;
    int64_t ended, retries;
    int64_t end_ns; /* after it nobody begins another */
    int under_way;
};

static bool adds_itself(const struct run *run) { return run->options->transaction_version < 2; }

static void send_batches(struct run *run, struct producer *producer) {
    const struct options *options = run->options;
    producer->step = PRODUCING;
    producer->unanswered = options->transaction_batches;
    producer->refused = 0;
    for (int at = 0; at < options->transaction_batches; at++) {
        int32_t sequence = producer->sequence + at * options->batch_records;
        stamp_batch(producer->frame.data + producer->batch_at, run->batch_bytes, &producer->id, sequence);
        send_all(producer->peer.socket, producer->frame.data, producer->frame.size);
    }
}

static void start_step(struct run *run, struct producer *producer, enum step step) {
    producer->step = step;
    switch (step) {
        case STARTING:
            put_init_producer_id(&producer->peer.request, producer->transactional_id);
            break;
        case ADDING:
            put_add_partition(&producer->peer.request, producer->transactional_id, &producer->id, run->options->topic,
                producer->partition);
            break;
        case ENDING:
            put_end_transaction(
                &producer->peer.request, adds_itself(run) ? 4 : 5, producer->transactional_id, &producer->id);
            break;
        default:
            send_batches(run, producer);
            return;
    }
    send_request(&producer->peer);
}

static void rest(struct run *run, struct producer *producer, enum step resumes) {
    producer->resumes = resumes;
    producer->step = RESTING;
    producer->due_ns = now_ns() + PAUSE_MS * (int64_t)1000000;
    run->retries++;
}

/* Whether the step was taken; else it is tried again, or the program ends. */
static bool check(struct run *run, struct producer *producer, int error, const char *what) {
    if (error == NO_ERROR) return true;
    if (error != CONCURRENT_TRANSACTIONS && !is_coordinator_starting(error)) fail("%s was answered with error %d", what, error);
    rest(run, producer, producer->step);
    return false;
}

static void begin(struct run *run, struct producer *producer) {
    run->under_way++;
    start_step(run, producer, adds_itself(run) ? ADDING : PRODUCING);
}

static void on_produced(struct run *run, struct producer *producer, int error) {
    /* The first batch that is refused takes those behind it with it, which then come out of order. */
    if (producer->refused == 0 && error != NO_ERROR) producer->refused = error;
    if (--producer->unanswered > 0) return;
    if (!check(run, producer, producer->refused, "a Produce request")) return;
    producer->sequence += run->options->transaction_batches * run->options->batch_records;
    start_step(run, producer, ENDING);
}

static void on_ended(struct run *run, struct producer *producer, struct reader *in) {
    if (adds_itself(run)) {
        if (!check(run, producer, take_error(in), "an EndTxn request")) return;
    } else {
        struct producer_id next = take_producer_id(in);
        if (!check(run, producer, next.error, "an EndTxn request")) return;
        if (next.id != producer->id.id || next.epoch != producer->id.epoch) producer->sequence = 0;
        producer->id = next;
    }
    run->ended++;
    run->under_way--;
    producer->step = RESTING;
    producer->due_ns = INT64_MAX;
    if (now_ns() < run->end_ns) begin(run, producer);
}

/* The partition's error, at its place behind the header; requests.h reads whole frames. */
static int take_produced(struct reader *in) {
    uint64_t size;
    uint64_t topics = take_count(in);
    take_compact(in, &size);
    uint64_t partitions = take_count(in);
    take(in, 4);
    int error = (int)take_number(in, 2);
    return in->broken || topics != 1 || partitions != 1 ? UNREADABLE : error;
}

static void on_producer_answers(struct run *run, struct producer *producer) {
    struct reader in;
    receive_more(&producer->peer);
    while (take_answer(&producer->peer, &in)) {
        switch (producer->step) {
            case STARTING:
                producer->id = take_producer_id(&in);
                if (!check(run, producer, producer->id.error, "an InitProducerId request")) break;
                start_step(run, producer, adds_itself(run) ? ADDING : PRODUCING);
                break;
            case ADDING:
                if (check(run, producer, take_partition_added(&in), "an AddPartitionsToTxn request"))
                    start_step(run, producer, PRODUCING);
                break;
            case PRODUCING:
                on_produced(run, producer, take_produced(&in));
                break;
            case ENDING:
                on_ended(run, producer, &in);
                break;
            case RESTING:
                fail("an answer that nobody asked for");
        }
    }
}

static void run_until_ended(struct run *run) {
    void *owners[OWNERS_MAX];
    int64_t heard = now_ns();
    while (run->under_way > 0) {
        int64_t now = now_ns();
        int timeout_ms = 1000;
        for (int at = 0; at < run->options->connections; at++) {
            struct producer *producer = &run->producers[at];
            if (producer->step != RESTING || producer->due_ns == INT64_MAX) continue;
            timeout_ms = PAUSE_MS;
            if (now >= producer->due_ns) start_step(run, producer, producer->resumes);
        }
        int ready = wait_peers(run->epoll, owners, OWNERS_MAX, timeout_ms);
        for (int at = 0; at < ready; at++) on_producer_answers(run, owners[at]);
        if (ready > 0) heard = now;
        if (now - heard > SILENCE_MAX_S * (int64_t)1000000000) fail("no answer for %d s", SILENCE_MAX_S);
    }
}

static void start_producer(struct run *run, int number, const struct writer *batch) {
    const struct options *options = run->options;
    struct producer *producer = &run->producers[number];
    put_name(producer->transactional_id, sizeof producer->transactional_id, options, number);
    producer->partition = number % options->partitions;
    producer->frame = new_produce(adds_itself(run) ? PRODUCE_VERSION_1 : PRODUCE_VERSION_2, -1,
        producer->transactional_id, options->topic, producer->partition, batch, &producer->batch_at);
    open_peer(options, &producer->peer, run->epoll, producer);
    if (number == 0) await_coordinator(options, TRANSACTION_KEY_TYPE, producer->transactional_id);
    run->under_way++;
    start_step(run, producer, STARTING);
}

void run_transactions(const struct options *options) {
    struct writer batch = new_batch(options->batch_records, (size_t)options->record_bytes, wall_ms());
    struct run run = {.options = options, .epoll = new_epoll(), .batch_bytes = batch.size};
    run.producers = calloc((size_t)options->connections, sizeof *run.producers);
    if (run.producers == NULL) fail("no memory for %d producers", options->connections);
    for (int at = 0; at < options->connections; at++) start_producer(&run, at, &batch);
    run_until_ended(&run); /* one transaction each, so that everything is there */
    run.ended = run.retries = 0;
    double used = cpu_seconds();
    int64_t start = now_ns();
    run.end_ns = start + options->seconds * (int64_t)1000000000;
    for (int at = 0; at < options->connections; at++) begin(&run, &run.producers[at]);
    run_until_ended(&run);
    double seconds = (double)(now_ns() - start) / 1e9;
    int64_t batches = run.ended * options->transaction_batches;
    printf("{\"seconds\": %.6f, \"requests\": %lld, \"records\": %lld, \"bytes\": %lld, \"client_cpu_s\": %.6f, "
           "\"retries\": %lld}\n",
        seconds, (long long)run.ended, (long long)batches * options->batch_records,
        (long long)batches * (long long)batch.size, cpu_seconds() - used, (long long)run.retries);
}
