/* What a transactional producer sends besides Produce: InitProducerId v4, AddPartitionsToTxn v3 and EndTxn v4 or v5.
 *
 * With version 5 of EndTxn the broker bumps the producer's epoch at every end, and adds partitions itself when records
 * come; before, the client adds them and keeps its epoch.
 */
#ifndef OTTLA_LOAD_TRANSACTION_REQUESTS_H
#define OTTLA_LOAD_TRANSACTION_REQUESTS_H

#include "group_requests.h"

enum {
    INIT_PRODUCER_ID_KEY = 22, ADD_PARTITIONS_KEY = 24, END_TRANSACTION_KEY = 26, TRANSACTION_TIMEOUT_MS = 60000,
    BATCH_ATTRIBUTES_AT = 21, BATCH_PRODUCER_ID_AT = 43, BATCH_PRODUCER_EPOCH_AT = 51, BATCH_SEQUENCE_AT = 53,
    TRANSACTIONAL_ATTRIBUTE = 0x10,
};

struct producer_id {
    int error;
    int64_t id;
    int epoch;
};

static inline void put_init_producer_id(struct writer *out, const char *transactional_id) {
    put_header(out, INIT_PRODUCER_ID_KEY, 4, 1);
    put_compact_string(out, transactional_id);
    put_number(out, TRANSACTION_TIMEOUT_MS, 4);
    put_number(out, -1, 8); /* expects no producer id */
    put_number(out, -1, 2);
    put_no_tags(out);
}

static inline struct producer_id take_producer_id(struct reader *in) {
    struct producer_id found = {0};
    take(in, 4); /* throttle time */
    found.error = (int)take_number(in, 2);
    found.id = take_number(in, 8);
    found.epoch = (int)take_number(in, 2);
    if (in->broken) found.error = UNREADABLE;
    return found;
}

static inline void put_add_partition(
    struct writer *out, const char *transactional_id, const struct producer_id *producer, const char *topic, int partition) {
    put_header(out, ADD_PARTITIONS_KEY, 3, 2);
    put_compact_string(out, transactional_id);
    put_number(out, producer->id, 8);
    put_number(out, producer->epoch, 2);
    put_unsigned_varint(out, 2);
    put_compact_string(out, topic);
    put_unsigned_varint(out, 2);
    put_number(out, partition, 4);
    put_no_tags(out);
    put_no_tags(out);
}

/* The error of the one partition. */
static inline int take_partition_added(struct reader *in) {
    uint64_t size;
    take(in, 4); /* throttle time */
    uint64_t topics = take_count(in);
    take_compact(in, &size);
    uint64_t partitions = take_count(in);
    take(in, 4);
    int error = (int)take_number(in, 2);
    return in->broken || topics != 1 || partitions != 1 ? UNREADABLE : error;
}

static inline void put_end_transaction(
    struct writer *out, int version, const char *transactional_id, const struct producer_id *producer) {
    put_header(out, END_TRANSACTION_KEY, version, 3);
    put_compact_string(out, transactional_id);
    put_number(out, producer->id, 8);
    put_number(out, producer->epoch, 2);
    put_number(out, 1, 1); /* commit */
    put_no_tags(out);
}

/* Makes the batch the producer's, in its transaction, from this sequence on; its CRC becomes right again. */
static inline void stamp_batch(uint8_t *batch, size_t size, const struct producer_id *producer, int32_t sequence) {
    store_number(batch + BATCH_ATTRIBUTES_AT, TRANSACTIONAL_ATTRIBUTE, 2);
    store_number(batch + BATCH_PRODUCER_ID_AT, (uint64_t)producer->id, 8);
    store_number(batch + BATCH_PRODUCER_EPOCH_AT, (uint64_t)producer->epoch, 2);
    store_number(batch + BATCH_SEQUENCE_AT, (uint64_t)sequence, 4);
    seal_batch(batch, size);
}

#endif
