/* What editing the headers of records does per record: finding headers by name, and writing a record's headers without
 * some of them and with others behind them.
 *
 * Nothing here needs the GIL. Every read is bounded by the end of the record. Every size to be written is counted first.
 */
#ifndef OTTLA_HEADER_EDIT_H
#define OTTLA_HEADER_EDIT_H

#include "record.h"

/* Names of headers. Most headers of a record are none of them, and most of those have another length. */
enum { OTTLA_NAMES_MAX = 64, OTTLA_NAME_BYTES_MAX = 62 };

typedef struct {
    const uint8_t *text[OTTLA_NAMES_MAX];
    int32_t size[OTTLA_NAMES_MAX];
    int count;
    uint64_t sizes; /* bit n: a name has n bytes */
} ottla_names;

/* Which of the names a header has, or -1. */
static inline int ottla_name_of(const ottla_names *names, const ottla_header *header) {
    if (header->key_size > OTTLA_NAME_BYTES_MAX || !(names->sizes >> header->key_size & 1)) return -1;
    for (int index = 0; index < names->count; index++) {
        if (names->size[index] == header->key_size &&
            memcmp(names->text[index], header->key, (size_t)header->key_size) == 0)
            return index;
    }
    return -1;
}

/* The last header of each name. */
typedef struct {
    ottla_header headers[OTTLA_NAMES_MAX];
    uint64_t found; /* bit n: the record has the name n */
} ottla_found_headers;

/* Reads the next record and finds its headers of these names. Checks that its headers fill its rest. */
static inline ottla_record_finding ottla_find_headers(
    const uint8_t *at, const uint8_t *end, const ottla_names *names, ottla_record *record,
    ottla_found_headers *found) {
    ottla_record_finding finding = ottla_read_record(at, end, record);
    if (finding != OTTLA_RECORD_GOOD) return finding;
    found->found = 0;
    at = record->headers;
    for (int32_t number = 0; number < record->header_count; number++) {
        ottla_header header;
        at = ottla_read_header(at, record->end, &header);
        if (at == NULL) return OTTLA_RECORD_BAD_HEADERS;
        int name = ottla_name_of(names, &header);
        if (name >= 0) {
            found->headers[name] = header;
            found->found |= (uint64_t)1 << name;
        }
    }
    return at == record->end ? OTTLA_RECORD_GOOD : OTTLA_RECORD_BAD_HEADERS;
}

/* A decimal number of 0 to 2^63-1 in 1 to 19 digits, or one of the two below. */
enum { OTTLA_NUMBER_ABSENT = -1, OTTLA_NUMBER_MALFORMED = -2, OTTLA_DIGITS_MAX = 19 };

static inline int64_t ottla_read_decimal(const uint8_t *at, int32_t size) {
    if (size < 1 || size > OTTLA_DIGITS_MAX) return OTTLA_NUMBER_MALFORMED;
    uint64_t value = 0; /* 19 digits fit into 64 bits */
    for (int32_t index = 0; index < size; index++) {
        uint8_t digit = (uint8_t)(at[index] - '0');
        if (digit > 9) return OTTLA_NUMBER_MALFORMED;
        value = value * 10 + digit;
    }
    return value > INT64_MAX ? OTTLA_NUMBER_MALFORMED : (int64_t)value;
}

static inline int ottla_digit_count(int64_t value) {
    int count = 1;
    for (uint64_t power = 10; count < OTTLA_DIGITS_MAX && (uint64_t)value >= power; power *= 10) count++;
    return count;
}

/* Writes the digits of a number that is not negative. */
static inline uint8_t *ottla_write_decimal(uint8_t *to, int64_t value) {
    uint8_t *end = to + ottla_digit_count(value);
    uint8_t *at = end;
    do {
        *--at = (uint8_t)('0' + value % 10);
        value /= 10;
    } while (at > to);
    return end;
}

/* A header that records get: its name, and as its value a prefix and the record's number. A record whose number is
 * negative does not get it. */
typedef struct {
    const uint8_t *name, *prefix;
    int32_t name_size, prefix_size;
    const int64_t *numbers;
} ottla_stamp;

/* Headers that one record gets, in their wire form. */
typedef struct {
    const uint8_t *at;
    size_t size;
    int32_t count;
} ottla_extra;

/* What a record's headers become. */
typedef struct {
    const ottla_names *dropped;
    const ottla_stamp *stamps;
    int stamp_count;
    const ottla_extra *extras; /* one for each record, or NULL */
} ottla_edit;

/* A record's headers before and after an edit. They were checked before: exactly `count` fill `size` bytes. */
typedef struct {
    const uint8_t *at;
    size_t size;
    int32_t count;
    size_t kept_size, edited_size;
    int32_t kept_count, edited_count;
} ottla_headers;

/* Counts what the edited headers take: that is `edited_size`, and their count before them. */
static inline void ottla_plan_headers(ottla_headers *headers, const ottla_edit *edit, size_t index) {
    headers->kept_size = headers->size;
    headers->kept_count = headers->count;
    if (edit->dropped->count > 0) {
        const uint8_t *at = headers->at, *end = at + headers->size;
        for (int32_t number = 0; number < headers->count; number++) {
            ottla_header header;
            const uint8_t *after = ottla_read_header(at, end, &header);
            if (after == NULL) break; /* cannot be: they were checked */
            if (ottla_name_of(edit->dropped, &header) >= 0) {
                headers->kept_size -= (size_t)(after - at);
                headers->kept_count--;
            }
            at = after;
        }
    }
    headers->edited_size = headers->kept_size;
    headers->edited_count = headers->kept_count;
    for (int number = 0; number < edit->stamp_count; number++) {
        const ottla_stamp *stamp = edit->stamps + number;
        if (stamp->numbers[index] < 0) continue;
        headers->edited_size += ottla_field_size(stamp->name_size) +
                                ottla_field_size(stamp->prefix_size + ottla_digit_count(stamp->numbers[index]));
        headers->edited_count++;
    }
    if (edit->extras != NULL) {
        headers->edited_size += edit->extras[index].size;
        headers->edited_count += edit->extras[index].count;
    }
}

static inline size_t ottla_edited_bytes(const ottla_headers *headers) {
    return ottla_varint_size(headers->edited_count) + headers->edited_size;
}

static inline uint8_t *ottla_write_kept_headers(uint8_t *to, const ottla_headers *headers, const ottla_names *dropped) {
    const uint8_t *at = headers->at, *end = at + headers->size;
    for (int32_t number = 0; number < headers->count; number++) {
        ottla_header header;
        const uint8_t *after = ottla_read_header(at, end, &header);
        if (after == NULL) break; /* cannot be: they were checked */
        if (ottla_name_of(dropped, &header) < 0) {
            memcpy(to, at, (size_t)(after - at));
            to += after - at;
        }
        at = after;
    }
    return to;
}

/* Writes the count and the headers that ottla_plan_headers has counted. */
static inline uint8_t *ottla_write_edited_headers(
    uint8_t *to, const ottla_headers *headers, const ottla_edit *edit, size_t index) {
    to = ottla_put_varint(to, headers->edited_count);
    if (headers->kept_size != headers->size) {
        to = ottla_write_kept_headers(to, headers, edit->dropped);
    } else if (headers->size > 0) {
        memcpy(to, headers->at, headers->size);
        to += headers->size;
    }
    for (int number = 0; number < edit->stamp_count; number++) {
        const ottla_stamp *stamp = edit->stamps + number;
        int64_t value = stamp->numbers[index];
        if (value < 0) continue;
        to = ottla_write_field(to, stamp->name, stamp->name_size);
        to = ottla_put_varint(to, stamp->prefix_size + ottla_digit_count(value));
        if (stamp->prefix_size > 0) memcpy(to, stamp->prefix, (size_t)stamp->prefix_size);
        to = ottla_write_decimal(to + stamp->prefix_size, value);
    }
    if (edit->extras != NULL && edit->extras[index].size > 0) {
        memcpy(to, edit->extras[index].at, edit->extras[index].size);
        to += edit->extras[index].size;
    }
    return to;
}

/* A batch's records, in turn. */
typedef struct {
    const uint8_t *at, *end;
    int32_t count, done;
} ottla_edit_walk;

/* Reads the next record of a walk, and checks its headers. */
static inline ottla_record_finding ottla_next_record(
    ottla_edit_walk *walk, ottla_record *record, ottla_headers *headers) {
    ottla_record_finding finding = ottla_read_record(walk->at, walk->end, record);
    if (finding != OTTLA_RECORD_GOOD) return finding;
    if (!ottla_headers_fill(record->headers, record->end, record->header_count)) return OTTLA_RECORD_BAD_HEADERS;
    headers->at = record->headers;
    headers->size = (size_t)(record->end - record->headers);
    headers->count = record->header_count;
    return OTTLA_RECORD_GOOD;
}

/* Where the length of the key begins, in a record that was read: a number may take more bytes than it needs. */
static inline const uint8_t *ottla_fields_start(const uint8_t *start, const ottla_record *record) {
    int32_t number;
    int64_t delta;
    start = ottla_varint(start, record->end, &number);
    start = ottla_varlong(start + 1, record->end, &delta);
    return ottla_varint(start, record->end, &number);
}

/* Where a record's key and value end, and the count of its headers begins. */
static inline const uint8_t *ottla_fields_end(const ottla_record *record) {
    return record->value + (record->value_size > 0 ? record->value_size : 0);
}

/* Counts the bytes of the edited records; walks them with every bound checked. */
static ottla_record_finding ottla_measure_edited(ottla_edit_walk *walk, const ottla_edit *edit, size_t *size) {
    *size = 0;
    for (; walk->done < walk->count; walk->done++) {
        ottla_record record;
        ottla_headers headers;
        int32_t length;
        ottla_record_finding finding = ottla_next_record(walk, &record, &headers);
        if (finding != OTTLA_RECORD_GOOD) return finding;
        const uint8_t *body = ottla_varint(walk->at, walk->end, &length);
        ottla_plan_headers(&headers, edit, (size_t)walk->done);
        size_t body_size = (size_t)(ottla_fields_end(&record) - body) + ottla_edited_bytes(&headers);
        if (body_size > INT32_MAX) return OTTLA_RECORD_BAD_LENGTH;
        *size += ottla_varint_size((int64_t)body_size) + body_size;
        walk->at = record.end;
    }
    return walk->at == walk->end ? OTTLA_RECORD_GOOD : OTTLA_RECORD_TRAILING;
}

/* Writes the edited records, after ottla_measure_edited has walked them: their bounds are known to be good. */
static uint8_t *ottla_write_edited(uint8_t *to, const ottla_edit_walk *walk, const ottla_edit *edit) {
    const uint8_t *at = walk->at;
    for (int32_t index = 0; index < walk->count; index++) {
        ottla_record record;
        ottla_headers headers;
        int32_t length;
        ottla_read_record(at, walk->end, &record);
        const uint8_t *body = ottla_varint(at, walk->end, &length);
        headers.at = record.headers;
        headers.size = (size_t)(record.end - record.headers);
        headers.count = record.header_count;
        ottla_plan_headers(&headers, edit, (size_t)index);
        size_t fields_size = (size_t)(ottla_fields_end(&record) - body);
        to = ottla_put_varint(to, (int64_t)(fields_size + ottla_edited_bytes(&headers)));
        memcpy(to, body, fields_size);
        to = ottla_write_edited_headers(to + fields_size, &headers, edit, (size_t)index);
        at = record.end;
    }
    return to;
}

/* A record that was taken out of its batch. From `fields` on it has its key and value in their wire form, the count of
 * its headers, and from `headers_at` on its headers. */
typedef struct {
    int64_t offset, timestamp;
    const uint8_t *fields;
    uint32_t fields_size, headers_at, headers_size;
    int32_t header_count;
} ottla_picked;

/* Records are picked in any order, so that reading one mostly waits for memory. These are on their way meanwhile. */
enum { OTTLA_PICKS_AHEAD = 12 };

static inline void ottla_fetch_bytes(const uint8_t *at, size_t size) {
    for (size_t done = 0; done < size && done < 512; done += 64) __builtin_prefetch(at + done);
}

static inline ottla_headers ottla_picked_headers(const ottla_picked *picked, const ottla_edit *edit, size_t index) {
    ottla_headers headers;
    headers.at = picked->fields + picked->headers_at;
    headers.size = picked->headers_size;
    headers.count = picked->header_count;
    ottla_plan_headers(&headers, edit, index);
    return headers;
}

static inline size_t ottla_picked_body_size(
    const ottla_picked *picked, const ottla_headers *headers, int64_t timestamp_delta, int32_t offset_delta) {
    return 1 + ottla_varint_size(timestamp_delta) + ottla_varint_size(offset_delta) + picked->fields_size +
           ottla_edited_bytes(headers);
}

/* Counts the bytes of the records with their headers edited, and fills what the batch's header says about them. */
static inline size_t ottla_measure_picked(
    const ottla_picked *const *picked, size_t count, const ottla_edit *edit, ottla_batch_fields *fields) {
    size_t total = 0;
    for (size_t index = 0; index < count && index < OTTLA_PICKS_AHEAD; index++) __builtin_prefetch(picked[index]);
    for (size_t index = 0; index < count; index++) {
        if (index + 2 * OTTLA_PICKS_AHEAD < count) __builtin_prefetch(picked[index + 2 * OTTLA_PICKS_AHEAD]);
        if (index + OTTLA_PICKS_AHEAD < count) {
            const ottla_picked *next = picked[index + OTTLA_PICKS_AHEAD];
            ottla_fetch_bytes(next->fields + next->headers_at, next->headers_size);
        }
        const ottla_picked *record = picked[index];
        if (index == 0) fields->base_timestamp = fields->max_timestamp = record->timestamp;
        if (record->timestamp > fields->max_timestamp) fields->max_timestamp = record->timestamp;
        ottla_headers headers = ottla_picked_headers(record, edit, index);
        size_t body = ottla_picked_body_size(
            record, &headers, ottla_sub64(record->timestamp, fields->base_timestamp), (int32_t)index);
        total += ottla_varint_size((int64_t)body) + body;
    }
    fields->count = (int32_t)count;
    fields->last_offset_delta = (int32_t)count - 1;
    return total;
}

/* Writes the records that ottla_measure_picked has counted. */
static inline void ottla_write_picked(
    uint8_t *to, const ottla_picked *const *picked, size_t count, int64_t base_timestamp, const ottla_edit *edit) {
    for (size_t index = 0; index < count; index++) {
        if (index + 2 * OTTLA_PICKS_AHEAD < count) __builtin_prefetch(picked[index + 2 * OTTLA_PICKS_AHEAD]);
        if (index + OTTLA_PICKS_AHEAD < count) {
            const ottla_picked *next = picked[index + OTTLA_PICKS_AHEAD];
            ottla_fetch_bytes(next->fields, (size_t)next->headers_at + next->headers_size);
        }
        const ottla_picked *record = picked[index];
        int64_t timestamp_delta = ottla_sub64(record->timestamp, base_timestamp);
        ottla_headers headers = ottla_picked_headers(record, edit, index);
        to = ottla_put_varint(
            to, (int64_t)ottla_picked_body_size(record, &headers, timestamp_delta, (int32_t)index));
        *to++ = 0;
        to = ottla_put_varint(to, timestamp_delta);
        to = ottla_put_varint(to, (int64_t)index);
        memcpy(to, record->fields, record->fields_size);
        to = ottla_write_edited_headers(to + record->fields_size, &headers, edit, index);
    }
}

#endif
