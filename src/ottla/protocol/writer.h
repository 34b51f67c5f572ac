/* Writing the fields of a response into a buffer that grows.
 *
 * `ottla_reserve` makes room; the writes behind it only move on, so a caller reserves once for several fields. Small
 * responses never leave the writer's own bytes. reader.h is the other direction.
 */
#ifndef OTTLA_PROTOCOL_WRITER_H
#define OTTLA_PROTOCOL_WRITER_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { OTTLA_VARINT_BYTES_MAX = 5 };

typedef struct {
    uint8_t *data;
    size_t size;
    size_t room;
    uint8_t own[1024];
} ottla_writer;

static inline void ottla_open_writer(ottla_writer *to) {
    to->data = to->own;
    to->size = 0;
    to->room = sizeof to->own;
}

static inline void ottla_close_writer(ottla_writer *to) {
    if (to->data != to->own) free(to->data);
}

static int ottla_grow_writer(ottla_writer *to, size_t need) {
    size_t room = to->room * 2 > need ? to->room * 2 : need;
    uint8_t *data = (uint8_t *)(to->data == to->own ? malloc(room) : realloc(to->data, room));
    if (data == NULL) return -1;
    if (to->data == to->own) memcpy(data, to->own, to->size);
    to->data = data;
    to->room = room;
    return 0;
}

/* 0, or -1 without memory. */
static inline int ottla_reserve(ottla_writer *to, size_t more) {
    if (to->room - to->size >= more) return 0;
    if (more > SIZE_MAX / 4) return -1;
    return ottla_grow_writer(to, to->size + more);
}

static inline void ottla_write8(ottla_writer *to, uint8_t value) { to->data[to->size++] = value; }

static inline void ottla_write16(ottla_writer *to, int16_t value) {
    uint16_t raw = (uint16_t)value;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    raw = __builtin_bswap16(raw);
#endif
    memcpy(to->data + to->size, &raw, 2);
    to->size += 2;
}

/* At a given place, which is how a length is filled in when it is known. */
static inline void ottla_store32(uint8_t *at, int32_t value) {
    uint32_t raw = (uint32_t)value;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    raw = __builtin_bswap32(raw);
#endif
    memcpy(at, &raw, 4);
}

static inline void ottla_write32(ottla_writer *to, int32_t value) {
    ottla_store32(to->data + to->size, value);
    to->size += 4;
}

static inline void ottla_write64(ottla_writer *to, int64_t value) {
    uint64_t raw = (uint64_t)value;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    raw = __builtin_bswap64(raw);
#endif
    memcpy(to->data + to->size, &raw, 8);
    to->size += 8;
}

static inline void ottla_write_varint(ottla_writer *to, uint32_t value) {
    while (value >= 0x80) {
        to->data[to->size++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    to->data[to->size++] = (uint8_t)value;
}

static inline void ottla_write_bytes(ottla_writer *to, const void *from, size_t size) {
    if (size > 0) memcpy(to->data + to->size, from, size);
    to->size += size;
}

/* An array's count, or -1 for null. */
static inline void ottla_write_count(ottla_writer *to, int flexible, int32_t count) {
    if (flexible) ottla_write_varint(to, (uint32_t)count + 1);
    else ottla_write32(to, count);
}

#endif
