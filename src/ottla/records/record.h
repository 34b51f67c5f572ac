/* One record inside a batch: reading it with every bound checked, surveying it, and writing it.
 *
 * length varint | attributes int8 | timestamp delta varlong | offset delta varint | key | value | headers
 * A key or value is a varint length, -1 for null, and its bytes; headers are a varint count of (key, value) pairs whose
 * keys are UTF-8 and never null.
 */
#ifndef OTTLA_RECORD_H
#define OTTLA_RECORD_H

#include "wire.h"

/* A record has seven fields of a byte or more, so a payload has at most one record for this many of its bytes. */
enum { OTTLA_RECORD_BYTES_MIN = 7 };

typedef enum {
    OTTLA_RECORD_GOOD = 0,
    OTTLA_RECORD_CUT_OFF,      /* the payload ends before the record does, or before the batch's count is reached */
    OTTLA_RECORD_BAD_LENGTH,   /* the record's length is negative, or not what its fields take */
    OTTLA_RECORD_BAD_FIELD,    /* a varint is over-long or a field's length reaches outside the record */
    OTTLA_RECORD_BAD_HEADERS,  /* a negative count, or more headers than the record has room for */
    OTTLA_RECORD_TRAILING,     /* the payload goes on after the last record */
    OTTLA_RECORD_BAD_OFFSET,   /* an offset outside the batch's range, or not above the one before */
} ottla_record_finding;

typedef struct {
    int64_t timestamp_delta;
    int32_t offset_delta;
    int32_t key_size; /* -1: null */
    int32_t value_size;
    int32_t header_count;
    const uint8_t *key;
    const uint8_t *value;
    const uint8_t *headers; /* the first header, unread; ends at `end` */
    const uint8_t *end;
} ottla_record;

/* A nullable field: its size into `size`, its bytes' start returned via `bytes`, the position after it returned. */
static inline const uint8_t *ottla_read_field(
    const uint8_t *at, const uint8_t *end, int32_t *size, const uint8_t **bytes) {
    at = ottla_varint(at, end, size);
    if (at == NULL || *size < -1 || *size > end - at) return NULL;
    *bytes = at;
    return *size > 0 ? at + *size : at;
}

/* Everything up to the headers. ottla_read_header checks the headers' own bounds. */
static inline ottla_record_finding ottla_read_record(const uint8_t *at, const uint8_t *end, ottla_record *record) {
    int32_t length;
    at = ottla_varint(at, end, &length);
    if (at == NULL) return OTTLA_RECORD_CUT_OFF;
    if (length < 1) return OTTLA_RECORD_BAD_LENGTH;
    if (length > end - at) return OTTLA_RECORD_CUT_OFF;
    end = at + length;
    record->end = end;
    at = ottla_varlong(at + 1, end, &record->timestamp_delta);
    if (at == NULL) return OTTLA_RECORD_BAD_FIELD;
    at = ottla_varint(at, end, &record->offset_delta);
    if (at == NULL) return OTTLA_RECORD_BAD_FIELD;
    at = ottla_read_field(at, end, &record->key_size, &record->key);
    if (at == NULL) return OTTLA_RECORD_BAD_FIELD;
    at = ottla_read_field(at, end, &record->value_size, &record->value);
    if (at == NULL) return OTTLA_RECORD_BAD_FIELD;
    at = ottla_varint(at, end, &record->header_count);
    if (at == NULL) return OTTLA_RECORD_BAD_FIELD;
    /* A header takes two bytes at least. */
    if (record->header_count < 0 || record->header_count > (end - at) / 2) return OTTLA_RECORD_BAD_HEADERS;
    if (record->header_count == 0 && at != end) return OTTLA_RECORD_BAD_LENGTH;
    record->headers = at;
    return OTTLA_RECORD_GOOD;
}

typedef struct {
    int32_t key_size;
    int32_t value_size; /* -1: null */
    const uint8_t *key;
    const uint8_t *value;
} ottla_header;

static inline const uint8_t *ottla_read_header(const uint8_t *at, const uint8_t *end, ottla_header *header) {
    at = ottla_read_field(at, end, &header->key_size, &header->key);
    if (at == NULL || header->key_size < 0) return NULL;
    return ottla_read_field(at, end, &header->value_size, &header->value);
}

/* A producer's records, walked without looking into keys and values: what a leader must know before it appends. */
typedef struct {
    int64_t max_timestamp; /* -1 if no record has a larger one */
    int32_t keyless;       /* records without a key */
    int32_t untimely;      /* records with a timestamp outside [oldest, newest]; -1 stands for none and is allowed */
    int32_t walked;        /* records that were walked: all of them, or those before the malformed one */
} ottla_survey;

/* Whether exactly `count` well-formed headers fill the bytes up to `end`. */
static inline int ottla_headers_fill(const uint8_t *at, const uint8_t *end, int32_t count) {
    for (int32_t number = 0; number < count; number++) {
        ottla_header header;
        at = ottla_read_header(at, end, &header);
        if (at == NULL) return 0;
    }
    return at == end;
}

static inline ottla_record_finding ottla_survey_record(
    const uint8_t *at, const uint8_t *end, int32_t index, ottla_record *record) {
    ottla_record_finding finding = ottla_read_record(at, end, record);
    if (finding != OTTLA_RECORD_GOOD) return finding;
    if (record->offset_delta != index) return OTTLA_RECORD_BAD_OFFSET;
    if (!ottla_headers_fill(record->headers, record->end, record->header_count)) return OTTLA_RECORD_BAD_HEADERS;
    return OTTLA_RECORD_GOOD;
}

/* A varint of one or two bytes, still zig-zag encoded. If it goes on after the second byte, the result has bits above
 * OTTLA_SHORT_BITS. Two bytes are the usual case: the compiler lays them out without a jump. */
enum { OTTLA_SHORT_BITS = 14 };

static inline uint32_t ottla_short_varint(const uint8_t **at) {
    uint32_t raw = *(*at)++;
    if (__builtin_expect(raw >= 0x80, 1)) raw += ((uint32_t)*(*at)++ << 7) - 0x80;
    return raw;
}

/* ottla_survey_record for records whose numbers all take one or two bytes, without a bounds check for each of them.
 *
 * `at` lies before `limit`, and OTTLA_SURVEY_MARGIN bytes can be read from `limit` on. That is enough for all numbers
 * in front of the key, and for the value's length behind it. Returns the position after the record, or NULL if the
 * record needs the careful walk, which also says what is wrong with it. */
enum { OTTLA_SURVEY_MARGIN = 16 };

static inline const uint8_t *ottla_survey_short_record(
    const uint8_t *at, const uint8_t *limit, int32_t index, int64_t *timestamp_delta, int32_t *keyless) {
    uint32_t length = ottla_short_varint(&at);
    if ((ptrdiff_t)(length >> 1) > limit - at) return NULL;
    const uint8_t *end = at + (length >> 1);
    at++; /* attributes */
    uint32_t delta = ottla_short_varint(&at);
    uint32_t offset = ottla_short_varint(&at);
    uint32_t key = ottla_short_varint(&at);
    if (key > 1) {
        if (key & 1 || (ptrdiff_t)(key >> 1) >= end - at) return NULL;
        at += key >> 1;
    }
    uint32_t value = ottla_short_varint(&at);
    ptrdiff_t rest = end - at - (ptrdiff_t)(value >> 1); /* the headers and their count */
    if ((length | delta | offset | key | value) >> OTTLA_SHORT_BITS || offset != (uint32_t)index << 1) return NULL;
    if (length & 1 || (value & 1 && value != 1) || rest < 1) return NULL;
    at = end - rest;
    if (*at != 0 || rest != 1) {
        if (*at >= 0x80 || *at & 1 || !ottla_headers_fill(at + 1, end, *at >> 1)) return NULL;
    }
    *timestamp_delta = (int32_t)((delta >> 1) ^ (0u - (delta & 1)));
    *keyless += key == 1;
    return end;
}

/* Counts the timestamps outside [oldest, newest] of records that are well formed, one by one. */
static inline void ottla_survey_timestamps(
    const uint8_t *at, const uint8_t *end, int32_t count, int64_t base_timestamp, int64_t oldest, int64_t newest,
    ottla_survey *survey) {
    survey->max_timestamp = -1;
    survey->untimely = 0;
    for (int32_t index = 0; index < count; index++) {
        ottla_record record;
        if (ottla_read_record(at, end, &record) != OTTLA_RECORD_GOOD) return;
        int64_t timestamp = ottla_add64(base_timestamp, record.timestamp_delta);
        if (timestamp > survey->max_timestamp) survey->max_timestamp = timestamp;
        survey->untimely += timestamp != -1 && (timestamp < oldest || timestamp > newest);
        at = record.end;
    }
}

static inline ottla_record_finding ottla_survey_records(
    const uint8_t *at, const uint8_t *end, int32_t count, int64_t base_timestamp, int64_t oldest, int64_t newest,
    ottla_survey *survey) {
    /* Local, so that the compiler may keep them in registers: bytes that are read could be those of the struct. */
    const uint8_t *const start = at, *const limit = end - at > OTTLA_SURVEY_MARGIN ? end - OTTLA_SURVEY_MARGIN : at;
    ottla_record_finding finding = OTTLA_RECORD_GOOD;
    int64_t min_delta = INT64_MAX, max_delta = INT64_MIN, min_timestamp, max_timestamp;
    int32_t keyless = 0, index = 0;
    for (; index < count; index++) {
        int64_t delta;
        const uint8_t *next = at < limit ? ottla_survey_short_record(at, limit, index, &delta, &keyless) : NULL;
        if (__builtin_expect(next == NULL, 0)) {
            ottla_record record;
            finding = ottla_survey_record(at, end, index, &record);
            if (finding != OTTLA_RECORD_GOOD) break;
            delta = record.timestamp_delta;
            keyless += record.key_size < 0;
            next = record.end;
        }
        if (delta < min_delta) min_delta = delta;
        if (delta > max_delta) max_delta = delta;
        at = next;
    }
    if (finding == OTTLA_RECORD_GOOD && at != end) finding = OTTLA_RECORD_TRAILING;
    if (!__builtin_add_overflow(base_timestamp, min_delta, &min_timestamp) && min_timestamp >= oldest &&
        !__builtin_add_overflow(base_timestamp, max_delta, &max_timestamp) && max_timestamp <= newest) {
        *survey = (ottla_survey){max_timestamp < -1 ? -1 : max_timestamp, keyless, 0, index};
    } else {
        *survey = (ottla_survey){-1, keyless, 0, index};
        ottla_survey_timestamps(start, end, index, base_timestamp, oldest, newest, survey);
    }
    return finding;
}

/* UTF-8 as Unicode defines it: no over-long forms, no surrogates, nothing above U+10FFFF. Returns how many bytes the
 * next character takes, negative if they are not one: then the longest start of one, which one U+FFFD stands for. */
static inline int ottla_utf8_step(const uint8_t *at, const uint8_t *end) {
    uint8_t lead = *at;
    if (lead < 0x80) return 1;
    if (lead < 0xc2 || lead > 0xf4) return -1;
    int size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    uint8_t lowest = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    uint8_t highest = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    for (int index = 1; index < size; index++) {
        if (end - at <= index || at[index] < lowest || at[index] > highest) return -index;
        lowest = 0x80;
        highest = 0xbf;
    }
    return size;
}

/* How many bytes the text takes once made valid: `size` itself if it is valid already. */
static inline size_t ottla_utf8_size(const uint8_t *at, size_t size) {
    size_t total = 0;
    for (const uint8_t *end = at + size; at < end;) {
        int step = ottla_utf8_step(at, end);
        total += step > 0 ? (size_t)step : 3;
        at += step > 0 ? step : -step;
    }
    return total;
}

/* Writes the text with U+FFFD in place of what is not UTF-8, as other readers of the format show it. */
static inline uint8_t *ottla_utf8_write(uint8_t *to, const uint8_t *at, size_t size) {
    for (const uint8_t *end = at + size; at < end;) {
        int step = ottla_utf8_step(at, end);
        memcpy(to, step > 0 ? at : (const uint8_t *)"\xef\xbf\xbd", step > 0 ? (size_t)step : 3);
        to += step > 0 ? step : 3;
        at += step > 0 ? step : -step;
    }
    return to;
}

/* Sizes for writing. `headers_size` is the bytes of all headers without their count. Attributes take one byte. */
static inline size_t ottla_field_size(int64_t size) {
    return ottla_varint_size(size) + (size > 0 ? (size_t)size : 0);
}

static inline size_t ottla_record_body_size(
    int64_t timestamp_delta, int32_t offset_delta, int64_t key_size, int64_t value_size, int32_t header_count,
    size_t headers_size) {
    return 1 + ottla_varint_size(timestamp_delta) + ottla_varint_size(offset_delta) + ottla_field_size(key_size) +
           ottla_field_size(value_size) + ottla_varint_size(header_count) + headers_size;
}

static inline uint8_t *ottla_write_field(uint8_t *at, const uint8_t *bytes, int64_t size) {
    at = ottla_put_varint(at, size);
    if (size > 0) {
        memcpy(at, bytes, (size_t)size);
        at += size;
    }
    return at;
}

/* Everything up to the headers' bytes, which the caller writes at the position returned. */
static inline uint8_t *ottla_write_record(
    uint8_t *at, size_t body_size, int64_t timestamp_delta, int32_t offset_delta, const uint8_t *key, int64_t key_size,
    const uint8_t *value, int64_t value_size, int32_t header_count) {
    at = ottla_put_varint(at, (int64_t)body_size);
    *at++ = 0;
    at = ottla_put_varint(at, timestamp_delta);
    at = ottla_put_varint(at, offset_delta);
    at = ottla_write_field(at, key, key_size);
    at = ottla_write_field(at, value, value_size);
    return ottla_put_varint(at, header_count);
}

/* A batch header with everything but its CRC, which ottla_seal adds, given that of the payload. */
typedef struct {
    int64_t base_offset, base_timestamp, max_timestamp, producer_id;
    int32_t leader_epoch, last_offset_delta, base_sequence, count;
    int16_t attributes, producer_epoch;
} ottla_batch_fields;

static inline void ottla_seal_around(
    uint8_t *batch, size_t size, const ottla_batch_fields *fields, uint32_t payload_crc) {
    ottla_put64(batch, (uint64_t)fields->base_offset);
    ottla_put32(batch + OTTLA_LENGTH_AT, (uint32_t)(size - OTTLA_PREFIX_BYTES));
    ottla_put32(batch + OTTLA_LEADER_EPOCH_AT, (uint32_t)fields->leader_epoch);
    batch[OTTLA_MAGIC_AT] = 2;
    ottla_put16(batch + OTTLA_ATTRIBUTES_AT, (uint16_t)fields->attributes);
    ottla_put32(batch + OTTLA_LAST_OFFSET_DELTA_AT, (uint32_t)fields->last_offset_delta);
    ottla_put64(batch + OTTLA_BASE_TIMESTAMP_AT, (uint64_t)fields->base_timestamp);
    ottla_put64(batch + OTTLA_MAX_TIMESTAMP_AT, (uint64_t)fields->max_timestamp);
    ottla_put64(batch + OTTLA_PRODUCER_ID_AT, (uint64_t)fields->producer_id);
    ottla_put16(batch + OTTLA_PRODUCER_EPOCH_AT, (uint16_t)fields->producer_epoch);
    ottla_put32(batch + OTTLA_BASE_SEQUENCE_AT, (uint32_t)fields->base_sequence);
    ottla_put32(batch + OTTLA_COUNT_AT, (uint32_t)fields->count);
    uint32_t crc = ottla_crc32c(0, batch + OTTLA_ATTRIBUTES_AT, OTTLA_HEADER_BYTES - OTTLA_ATTRIBUTES_AT);
    ottla_put32(batch + OTTLA_CRC_AT, ottla_crc32c_joined(crc, payload_crc, size - OTTLA_HEADER_BYTES));
}

static inline void ottla_seal(uint8_t *batch, size_t size, const ottla_batch_fields *fields) {
    ottla_seal_around(batch, size, fields, ottla_crc32c(0, batch + OTTLA_HEADER_BYTES, size - OTTLA_HEADER_BYTES));
}

#endif
