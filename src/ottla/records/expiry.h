/* When records expire, and which of a batch's records have not.
 *
 * A record expires its TTL after the later of its timestamp and its due time. Both times and the TTL are numbers of
 * milliseconds; TTL and due time are decimal text in headers. Nothing here needs the GIL. Every read is bounded by the
 * end of the payload.
 */
#ifndef OTTLA_EXPIRY_H
#define OTTLA_EXPIRY_H

#include "selection.h"

#define OTTLA_NEVER INT64_MAX

typedef struct {
    const char *name;
    int32_t size;
} ottla_header_name;

typedef struct {
    ottla_header_name ttl, due;
    int64_t ttl_ms;         /* of records without a TTL of their own; negative: they do not expire */
    int64_t base_timestamp;
    int64_t append_time;    /* the timestamp of all records; negative: each has its own */
} ottla_expiry_rule;

/* A decimal number of digits only, at most 19 of them; -1 for anything else and for what exceeds 63 bits. */
static inline int64_t ottla_decimal(const uint8_t *at, int32_t size) {
    uint64_t value = 0;
    if (size < 1 || size > 19) return -1;
    for (int32_t index = 0; index < size; index++) {
        if (at[index] < '0' || at[index] > '9') return -1;
        value = value * 10 + (uint64_t)(at[index] - '0');
    }
    return value > INT64_MAX ? -1 : (int64_t)value;
}

static inline int ottla_is_named(const ottla_header *header, const ottla_header_name *wanted) {
    return header->key_size == wanted->size && memcmp(header->key, wanted->name, (size_t)wanted->size) == 0;
}

/* When a record expires; -1 if its headers are malformed. The last of repeated headers counts. */
static inline int64_t ottla_expiry_of(const ottla_expiry_rule *rule, const ottla_record *record) {
    int64_t ttl = -1, due = -1, since;
    const uint8_t *at = record->headers;
    for (int32_t number = 0; number < record->header_count; number++) {
        ottla_header header;
        at = ottla_read_header(at, record->end, &header);
        if (at == NULL) return -1;
        if (ottla_is_named(&header, &rule->ttl)) ttl = ottla_decimal(header.value, header.value_size);
        if (ottla_is_named(&header, &rule->due)) due = ottla_decimal(header.value, header.value_size);
    }
    if (at != record->end) return -1;
    if (ttl < 0) ttl = rule->ttl_ms;
    since = rule->append_time >= 0 ? rule->append_time : ottla_add64(rule->base_timestamp, record->timestamp_delta);
    if (due > since) since = due;
    /* A record without a timestamp has no age. */
    if (ttl < 0 || since < 0) return OTTLA_NEVER;
    return since > OTTLA_NEVER - ttl ? OTTLA_NEVER : since + ttl;
}

typedef struct {
    const uint8_t *at, *end;
    int32_t count, last_delta;
    int32_t done;  /* records read so far */
    int32_t delta; /* the last one's */
} ottla_expiry_walk;

/* The next record and its expiry. */
static inline ottla_record_finding ottla_next_expiry(
    const ottla_expiry_rule *rule, ottla_expiry_walk *walk, ottla_record *record, int64_t *expiry) {
    ottla_record_finding finding = ottla_read_record(walk->at, walk->end, record);
    if (finding != OTTLA_RECORD_GOOD) return finding;
    if (record->offset_delta <= walk->delta || record->offset_delta > walk->last_delta) return OTTLA_RECORD_BAD_OFFSET;
    *expiry = ottla_expiry_of(rule, record);
    if (*expiry < 0) return OTTLA_RECORD_BAD_HEADERS;
    walk->at = record->end;
    walk->delta = record->offset_delta;
    walk->done++;
    return OTTLA_RECORD_GOOD;
}

/* The expiry of each record into `expiries`, and its offset delta into `deltas`, unless they are NULL; the first and
 * the last expiry into `bounds`. */
static inline ottla_record_finding ottla_walk_expiries(
    const ottla_expiry_rule *rule, ottla_expiry_walk *walk, int64_t *expiries, int32_t *deltas, int64_t bounds[2]) {
    bounds[0] = OTTLA_NEVER;
    bounds[1] = walk->count > 0 ? 0 : OTTLA_NEVER;
    while (walk->done < walk->count) {
        ottla_record record;
        int64_t expiry;
        ottla_record_finding finding = ottla_next_expiry(rule, walk, &record, &expiry);
        if (finding != OTTLA_RECORD_GOOD) return finding;
        if (expiry < bounds[0]) bounds[0] = expiry;
        if (expiry > bounds[1]) bounds[1] = expiry;
        if (expiries != NULL) {
            expiries[walk->done - 1] = expiry;
            deltas[walk->done - 1] = record.offset_delta;
        }
    }
    return walk->at == walk->end ? OTTLA_RECORD_GOOD : OTTLA_RECORD_TRAILING;
}

/* Selects the records that have not expired at `now`; the offset delta of the last of them into `last_kept`. */
static inline ottla_record_finding ottla_select_unexpired(
    const ottla_expiry_rule *rule, ottla_expiry_walk *walk, int64_t now, ottla_selection *selection,
    int32_t *last_kept) {
    while (walk->done < walk->count) {
        const uint8_t *start = walk->at;
        ottla_record record;
        int64_t expiry;
        ottla_record_finding finding = ottla_next_expiry(rule, walk, &record, &expiry);
        if (finding != OTTLA_RECORD_GOOD) return finding;
        selection->keeps[walk->done - 1] = expiry > now;
        if (expiry <= now) continue;
        if (selection->kept == 0 || record.timestamp_delta > selection->delta_max)
            selection->delta_max = record.timestamp_delta;
        selection->kept++;
        selection->bytes += (size_t)(record.end - start);
        *last_kept = record.offset_delta;
    }
    return walk->at == walk->end ? OTTLA_RECORD_GOOD : OTTLA_RECORD_TRAILING;
}

#endif
