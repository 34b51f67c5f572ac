/* Bytes of Kafka's protocol: a growing writer and a reader that checks every bound.
 *
 * Knows numbers, variable-length numbers, compact strings and tagged fields, and the plain strings inside old blobs. What requests are made of them is in
 * requests.h. A reader that runs past its end is marked broken and yields zeros, so one check at the end suffices.
 */
#ifndef OTTLA_LOAD_WIRE_H
#define OTTLA_LOAD_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct writer {
    uint8_t *data;
    size_t size, capacity;
};

struct reader {
    const uint8_t *at, *end;
    bool broken;
};

static inline void put_bytes(struct writer *out, const void *bytes, size_t size) {
    if (out->size + size > out->capacity) {
        out->capacity = 2 * (out->size + size);
        out->data = realloc(out->data, out->capacity);
        if (out->data == NULL) {
            fprintf(stderr, "no memory for a request of %zu bytes\n", out->capacity);
            exit(1);
        }
    }
    memcpy(out->data + out->size, bytes, size);
    out->size += size;
}

static inline void store_number(uint8_t *to, uint64_t number, int width) {
    for (int at = width - 1; at >= 0; at--, number >>= 8) to[at] = (uint8_t)number;
}

static inline void put_number(struct writer *out, int64_t number, int width) {
    uint8_t bytes[8];
    store_number(bytes, (uint64_t)number, width);
    put_bytes(out, bytes, (size_t)width);
}

static inline void put_unsigned_varint(struct writer *out, uint64_t number) {
    uint8_t bytes[10];
    size_t size = 0;
    for (; number >= 0x80; number >>= 7) bytes[size++] = (uint8_t)(number | 0x80);
    bytes[size++] = (uint8_t)number;
    put_bytes(out, bytes, size);
}

/* Zigzag: small numbers of either sign stay short. */
static inline void put_varint(struct writer *out, int64_t number) {
    put_unsigned_varint(out, ((uint64_t)number << 1) ^ (uint64_t)(number >> 63));
}

static inline void put_compact_string(struct writer *out, const char *text) {
    put_unsigned_varint(out, strlen(text) + 1);
    put_bytes(out, text, strlen(text));
}

/* `text` may be NULL. */
static inline void put_compact_nullable(struct writer *out, const char *text) {
    if (text == NULL) put_unsigned_varint(out, 0);
    else put_compact_string(out, text);
}

static inline void put_compact_bytes(struct writer *out, const struct writer *bytes) {
    put_unsigned_varint(out, bytes->size + 1);
    put_bytes(out, bytes->data, bytes->size);
}

/* A string as it was before the compact encoding. */
static inline void put_string(struct writer *out, const char *text) {
    put_number(out, (int64_t)strlen(text), 2);
    put_bytes(out, text, strlen(text));
}

static inline void put_no_tags(struct writer *out) { put_number(out, 0, 1); }

static inline const uint8_t *take(struct reader *in, uint64_t size) {
    if (in->broken || size > (uint64_t)(in->end - in->at)) {
        in->broken = true;
        return NULL;
    }
    const uint8_t *found = in->at;
    in->at += size;
    return found;
}

static inline int64_t load_number(const uint8_t *from, int width) {
    uint64_t number = from[0] & 0x80 ? ~(uint64_t)0 : 0;
    for (int at = 0; at < width; at++) number = number << 8 | from[at];
    return (int64_t)number;
}

static inline int64_t take_number(struct reader *in, int width) {
    const uint8_t *found = take(in, (uint64_t)width);
    return found == NULL ? 0 : load_number(found, width);
}

static inline uint64_t take_unsigned_varint(struct reader *in) {
    uint64_t number = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const uint8_t *byte = take(in, 1);
        if (byte == NULL) return 0;
        number |= (uint64_t)(*byte & 0x7f) << shift;
        if (!(*byte & 0x80)) return number;
    }
    in->broken = true;
    return 0;
}

/* A compact array's length: 0 for null as well. */
static inline uint64_t take_count(struct reader *in) {
    uint64_t count = take_unsigned_varint(in);
    return count == 0 ? 0 : count - 1;
}

/* A compact string or compact bytes: where they are and how many. */
static inline const uint8_t *take_compact(struct reader *in, uint64_t *size) {
    *size = take_count(in);
    return take(in, *size);
}

/* A compact string copied into `to`, which is empty for null; one that does not fit breaks the reader. */
static inline void take_text(struct reader *in, char *to, size_t capacity) {
    uint64_t size;
    const uint8_t *found = take_compact(in, &size);
    if (size >= capacity) in->broken = true;
    to[0] = 0;
    if (in->broken || size == 0) return;
    memcpy(to, found, size);
    to[size] = 0;
}

static inline void skip_tags(struct reader *in) {
    uint64_t size;
    for (uint64_t left = take_unsigned_varint(in); left > 0 && !in->broken; left--) {
        take_unsigned_varint(in);
        size = take_unsigned_varint(in);
        take(in, size);
    }
}

#endif
