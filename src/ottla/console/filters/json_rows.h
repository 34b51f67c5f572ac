/* Finds the documents that may pass a comparison, by a look at their bytes: most fail, and then are not read at all.
 *
 * JSON can write any character as an escape, so a document with a backslash may always pass.
 */
#ifndef OTTLA_JSON_ROWS_H
#define OTTLA_JSON_ROWS_H

#include <stdint.h>
#include <string.h>

#include "ottla/console/filters/json_fields.h"

/* Rows are looked at in blocks, so that a second look finds them in the processor's cache. */
enum { OTTLA_JSON_SHORT_MAX = 64, OTTLA_JSON_BLOCK_ROWS = 128, OTTLA_JSON_TRIED_ROWS = 256 };

/* The first place of some bytes, at least one; NULL if they are nowhere. */
static inline const uint8_t *ottla_json_find(
    const uint8_t *at, const uint8_t *end, const uint8_t *wanted, int32_t size) {
#ifdef __SSE2__
    // Longer ones could match almost everywhere; memmem is safe from that.
    if (size > 1 && size <= OTTLA_JSON_SHORT_MAX) {
        const __m128i first = _mm_set1_epi8((char)wanted[0]), last = _mm_set1_epi8((char)wanted[size - 1]);
        for (; end - at >= 32 + size - 1; at += 32) {
            unsigned found = 0;
            for (int half = 0; half < 32; half += 16) {
                const __m128i *firsts = (const __m128i *)(at + half), *lasts = (const __m128i *)(at + half + size - 1);
                __m128i both = _mm_and_si128(
                    _mm_cmpeq_epi8(_mm_loadu_si128(firsts), first), _mm_cmpeq_epi8(_mm_loadu_si128(lasts), last));
                found |= (unsigned)_mm_movemask_epi8(both) << half;
            }
            for (; found; found &= found - 1) {
                const uint8_t *place = at + __builtin_ctz(found);
                if (!memcmp(place + 1, wanted + 1, (size_t)size - 1))
                    return place;
            }
        }
    }
#endif
    if (at >= end)
        return NULL;
    return size == 1 ? memchr(at, wanted[0], (size_t)(end - at)) : memmem(at, (size_t)(end - at), wanted, (size_t)size);
}

/* Whether the offsets of `count` rows ascend and stay within the data. */
static int ottla_json_are_bounds(const int32_t *offsets, int64_t count, int64_t data_size) {
    int is_good = offsets[0] >= 0 && offsets[count] <= data_size;
    for (int64_t row = 0; row < count; row++)
        is_good &= offsets[row] <= offsets[row + 1];
    return is_good;
}

/* Marks rows that contain some bytes, at least one. Others keep their mark. */
static inline void ottla_json_mark(
    const uint8_t *data, const int32_t *offsets, int64_t count, const uint8_t *wanted, int32_t size, uint8_t *marks) {
    const uint8_t *at = data + offsets[0], *end = data + offsets[count];
    int64_t row = 0;
    while ((at = ottla_json_find(at, end, wanted, size))) {
        while (data + offsets[row + 1] <= at)
            row++;
        if (data + offsets[row + 1] - at >= size) {
            marks[row] = 1;
            at = data + offsets[row + 1];
        } else {
            // Across two rows.
            at++;
        }
    }
}

/* Marks rows that contain some bytes, and with `may_escape` those that contain a backslash; the others become 0. */
static void ottla_json_mark_texts(
    const uint8_t *data, const int32_t *offsets, int64_t count, const uint8_t *wanted, int32_t size, int may_escape,
    uint8_t *marks) {
    memset(marks, 0, (size_t)count);
    for (int64_t row = 0; row < count; row += OTTLA_JSON_BLOCK_ROWS) {
        int64_t some = count - row < OTTLA_JSON_BLOCK_ROWS ? count - row : OTTLA_JSON_BLOCK_ROWS;
        ottla_json_mark(data, offsets + row, some, wanted, size, marks + row);
        if (may_escape)
            ottla_json_mark(data, offsets + row, some, (const uint8_t *)"\\", 1, marks + row);
    }
}

/* Whether a colon and a number that may lie between two bounds begin here. */
static inline int ottla_json_may_lie(const uint8_t *at, const uint8_t *end, double low, double high) {
    ottla_json_reader reader = {at, end, end};
    ottla_json_field number;
    double value;
    int state;
    ottla_json_space(&reader);
    if (reader.at >= end || *reader.at != ':')
        return 0;
    reader.at++;
    ottla_json_space(&reader);
    if (reader.at >= end)
        return 0;
    number.is_slow = 0;
    state = ottla_json_number(&reader, &number);
    if (state || number.is_slow)
        return state != OTTLA_JSON_BROKEN;
    // Rounded to a double, a number that is not below a bound is not below the rounded bound.
    value = number.kind == OTTLA_JSON_INTEGER ? (double)number.integer : number.real;
    return value >= low && value <= high;
}

/* Marks rows without a mark in which a number between two bounds may follow a name, which has its quotes. */
static inline void ottla_json_mark_block(
    const uint8_t *data, const int32_t *offsets, int64_t count, const uint8_t *name, int32_t size, double low,
    double high, uint8_t *marks) {
    const uint8_t *at = data + offsets[0], *end = data + offsets[count], *row_end;
    int64_t row = 0;
    for (; (at = ottla_json_find(at, end, name, size)); at++) {
        while (data + offsets[row + 1] <= at)
            row++;
        row_end = data + offsets[row + 1];
        if (row_end - at >= size && !marks[row])
            marks[row] = (uint8_t)ottla_json_may_lie(at + size, row_end, low, high);
    }
}

/* Marks rows in which a number between two bounds may follow a name, and those with a backslash; the others become 0.
 * Marks all of them if it marks most of the first ones: then looking costs more than it saves. */
static void ottla_json_mark_numbers(
    const uint8_t *data, const int32_t *offsets, int64_t count, const uint8_t *name, int32_t size, double low,
    double high, uint8_t *marks) {
    int64_t found = 0;
    memset(marks, 0, (size_t)count);
    for (int64_t row = 0; row < count; row += OTTLA_JSON_BLOCK_ROWS) {
        int64_t some = count - row < OTTLA_JSON_BLOCK_ROWS ? count - row : OTTLA_JSON_BLOCK_ROWS;
        ottla_json_mark(data, offsets + row, some, (const uint8_t *)"\\", 1, marks + row);
        ottla_json_mark_block(data, offsets + row, some, name, size, low, high, marks + row);
        for (int64_t i = row; i < row + some && row < OTTLA_JSON_TRIED_ROWS; i++)
            found += marks[i];
        if (2 * found > OTTLA_JSON_TRIED_ROWS) {
            memset(marks, 1, (size_t)count);
            return;
        }
    }
}

#endif
