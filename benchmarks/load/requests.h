/* What a load sends and reads: Produce v9 to v12 and Fetch v12 for one topic, and the batches in them.
 *
 * These versions name a topic by its name and use compact encodings. Batches are uncompressed, without a producer id,
 * so a frame can be sent any number of times. A response's errors end the program: a load that fails measures nothing.
 */
#ifndef OTTLA_LOAD_REQUESTS_H
#define OTTLA_LOAD_REQUESTS_H

#include "crc32c.h"
#include "wire.h"

enum { PRODUCE_KEY = 0, FETCH_KEY = 1, FETCH_VERSION = 12, BATCH_HEADER = 61, PRODUCE_TIMEOUT_MS = 30000 };

/* The value of a batch's only record begins here: length, attributes, two deltas, no key, and the value's own length,
 * whose sizes depend on the value's size alone. */
static inline size_t varint_size(uint64_t zigzag) {
    size_t size = 1;
    for (; zigzag >= 0x80; zigzag >>= 7) size++;
    return size;
}

static inline size_t first_value_at(size_t value_bytes) {
    size_t value_length = varint_size(value_bytes << 1);
    size_t body = 1 + 1 + 1 + 1 + value_length + value_bytes + 1;
    return BATCH_HEADER + varint_size(body << 1) + 4 + value_length;
}

static inline void put_record(struct writer *out, int64_t offset_delta, const uint8_t *value, size_t value_bytes) {
    struct writer body = {0};
    put_number(&body, 0, 1); /* attributes */
    put_varint(&body, 0);    /* timestamp delta */
    put_varint(&body, offset_delta);
    put_varint(&body, -1); /* no key */
    put_varint(&body, (int64_t)value_bytes);
    put_bytes(&body, value, value_bytes);
    put_varint(&body, 0); /* no headers */
    put_varint(out, (int64_t)body.size);
    put_bytes(out, body.data, body.size);
    free(body.data);
}

static inline void seal_batch(uint8_t *batch, size_t size) {
    store_number(batch + 8, size - 12, 4);
    store_number(batch + 17, ottla_crc32c(0, batch + 21, size - 21), 4);
}

/* A batch of `count` records whose values are `value_bytes` of text that no two records share. */
static inline struct writer new_batch(int count, size_t value_bytes, int64_t timestamp_ms) {
    struct writer out = {0};
    uint8_t *value = malloc(value_bytes + 1);
    put_number(&out, 0, 8);  /* base offset: the broker's */
    put_number(&out, 0, 4);  /* length: sealed below */
    put_number(&out, -1, 4); /* leader epoch: the broker's */
    put_number(&out, 2, 1);  /* magic */
    put_number(&out, 0, 4);  /* CRC: sealed below */
    put_number(&out, 0, 2);  /* attributes */
    put_number(&out, count - 1, 4);
    put_number(&out, timestamp_ms, 8);
    put_number(&out, timestamp_ms, 8);
    put_number(&out, -1, 8); /* no producer id, epoch or sequence */
    put_number(&out, -1, 2);
    put_number(&out, -1, 4);
    put_number(&out, count, 4);
    uint32_t noise = 2463534242u;
    for (int record = 0; record < count; record++) {
        for (size_t at = 0; at < value_bytes; at++) {
            noise ^= noise << 13, noise ^= noise >> 17, noise ^= noise << 5;
            value[at] = (uint8_t)('!' + noise % 90);
        }
        put_record(&out, record, value, value_bytes);
    }
    free(value);
    seal_batch(out.data, out.size);
    return out;
}

static inline void put_header(struct writer *out, int key, int version, int correlation) {
    put_number(out, 0, 4); /* frame length: set by end_frame */
    put_number(out, key, 2);
    put_number(out, version, 2);
    put_number(out, correlation, 4);
    put_number(out, 4, 2);
    put_bytes(out, "load", 4);
    put_no_tags(out);
}

static inline void end_frame(struct writer *out) { store_number(out->data, out->size - 4, 4); }

/* One batch for one partition, in a transaction if `transactional_id` is not NULL. `batch_at`, if asked for, is where the batch begins in the frame. */
static inline struct writer new_produce(
    int version, int acks, const char *transactional_id, const char *topic, int partition, const struct writer *batch,
    size_t *batch_at) {
    struct writer out = {0};
    put_header(&out, PRODUCE_KEY, version, partition);
    put_compact_nullable(&out, transactional_id);
    put_number(&out, acks, 2);
    put_number(&out, PRODUCE_TIMEOUT_MS, 4);
    put_unsigned_varint(&out, 2);
    put_compact_string(&out, topic);
    put_unsigned_varint(&out, 2);
    put_number(&out, partition, 4);
    put_unsigned_varint(&out, batch->size + 1);
    if (batch_at != NULL) *batch_at = out.size;
    put_bytes(&out, batch->data, batch->size);
    put_no_tags(&out); /* partition */
    put_no_tags(&out); /* topic */
    put_no_tags(&out); /* request */
    end_frame(&out);
    return out;
}

/* The error code of a Produce response to one batch, or -999 if it cannot be read. */
static inline int read_produce(const uint8_t *frame, size_t size) {
    struct reader in = {frame, frame + size, false};
    uint64_t name_size;
    take(&in, 4); /* correlation id */
    skip_tags(&in);
    uint64_t topics = take_count(&in);
    take_compact(&in, &name_size);
    uint64_t partitions = take_count(&in);
    take(&in, 4); /* partition */
    int error = (int)take_number(&in, 2);
    return in.broken || topics != 1 || partitions != 1 ? -999 : error;
}

struct position {
    int partition;
    int64_t offset, high_watermark;
};

static inline void put_fetch(
    struct writer *out, const char *topic, const struct position *wanted, int count, int partition_bytes_max,
    int wait_ms) {
    out->size = 0;
    put_header(out, FETCH_KEY, FETCH_VERSION, 7);
    put_number(out, -1, 4); /* a consumer, no replica */
    put_number(out, wait_ms, 4);
    put_number(out, 1, 4);        /* answer as soon as there is a byte */
    put_number(out, 52428800, 4); /* most bytes: the clients' default */
    put_number(out, 0, 1);        /* read uncommitted */
    put_number(out, 0, 4);        /* no session */
    put_number(out, -1, 4);
    put_unsigned_varint(out, 2);
    put_compact_string(out, topic);
    put_unsigned_varint(out, (uint64_t)count + 1);
    for (int at = 0; at < count; at++) {
        put_number(out, wanted[at].partition, 4);
        put_number(out, -1, 4); /* any leader epoch */
        put_number(out, wanted[at].offset, 8);
        put_number(out, -1, 4); /* no last fetched epoch */
        put_number(out, -1, 8); /* no log start offset */
        put_number(out, partition_bytes_max, 4);
        put_no_tags(out);
    }
    put_no_tags(out);            /* topic */
    put_unsigned_varint(out, 1); /* nothing forgotten */
    put_unsigned_varint(out, 1); /* no rack */
    put_no_tags(out);
    end_frame(out);
}

typedef void (*batch_seen)(const uint8_t *batch, size_t size, void *state);

struct fetched {
    int error;
    int64_t records;
    size_t bytes; /* of whole batches */
};

static inline struct position *find_position(struct position *wanted, int count, int64_t partition) {
    for (int at = 0; at < count; at++) {
        if (wanted[at].partition == partition) return &wanted[at];
    }
    return NULL;
}

/* Walks whole batches by their headers and moves the position behind them. */
static inline void walk_batches(
    const uint8_t *at, uint64_t size, struct position *position, struct fetched *total, batch_seen seen, void *state) {
    while (size >= BATCH_HEADER) {
        uint64_t batch = (uint64_t)load_number(at + 8, 4) + 12;
        if (batch > size) break; /* a batch cut short: it comes whole with the next answer */
        if (seen != NULL && load_number(at, 8) >= position->offset) seen(at, batch, state);
        position->offset = load_number(at, 8) + load_number(at + 23, 4) + 1;
        total->records += load_number(at + 57, 4);
        total->bytes += batch;
        at += batch;
        size -= batch;
    }
}

/* Reads a Fetch response and moves the positions. A response that cannot be read has the error -999. */
static inline struct fetched read_fetch(
    const uint8_t *frame, size_t size, struct position *wanted, int count, batch_seen seen, void *state) {
    struct reader in = {frame, frame + size, false};
    struct fetched total = {0};
    uint64_t length;
    take(&in, 4); /* correlation id */
    skip_tags(&in);
    take(&in, 4); /* throttle time */
    total.error = (int)take_number(&in, 2);
    take(&in, 4); /* session */
    for (uint64_t topics = take_count(&in); topics > 0 && !in.broken; topics--) {
        take_compact(&in, &length);
        for (uint64_t left = take_count(&in); left > 0 && !in.broken; left--) {
            struct position *position = find_position(wanted, count, take_number(&in, 4));
            int error = (int)take_number(&in, 2);
            int64_t high_watermark = take_number(&in, 8);
            take(&in, 16); /* last stable offset, log start offset */
            for (uint64_t aborted = take_count(&in); aborted > 0 && !in.broken; aborted--) {
                take(&in, 16);
                skip_tags(&in);
            }
            take(&in, 4); /* preferred replica */
            const uint8_t *records = take_compact(&in, &length);
            skip_tags(&in);
            if (in.broken || position == NULL) break;
            if (error != 0) total.error = error;
            position->high_watermark = high_watermark;
            walk_batches(records, length, position, &total, seen, state);
        }
        skip_tags(&in);
    }
    if (in.broken) total.error = -999;
    return total;
}

#endif
