/* What compaction does per record: a keyed digest of the key, the map from digest to last offset, and the two walks over
 * a batch's records, one that fills the map and one that says which records stay and copies them.
 *
 * Nothing here needs the GIL. Every read is bounded by the end of the payload, every size by the payload's own.
 */
#ifndef OTTLA_COMPACTION_H
#define OTTLA_COMPACTION_H

#include <stdlib.h>

#include "growable.h"
#include "selection.h"

/* SipHash-2-4 with 128 bits of output. With a secret key, keys that collide cannot be made up; by chance, comparing
 * 2^40 records against a map of 2^23 keys meets a false match with a probability below 2^-64. */
typedef struct {
    uint64_t low, high;
} ottla_digest;

static inline uint64_t ottla_rotl(uint64_t value, int bits) { return value << bits | value >> (64 - bits); }

static inline uint64_t ottla_load_le(const uint8_t *at, size_t size) {
    uint64_t value = 0;
    memcpy(&value, at, size);
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    return value;
}

static inline void ottla_sip_round(uint64_t v[4]) {
    v[0] += v[1];
    v[2] += v[3];
    v[1] = ottla_rotl(v[1], 13) ^ v[0];
    v[3] = ottla_rotl(v[3], 16) ^ v[2];
    v[0] = ottla_rotl(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = ottla_rotl(v[1], 17) ^ v[2];
    v[3] = ottla_rotl(v[3], 21) ^ v[0];
    v[2] = ottla_rotl(v[2], 32);
}

static inline void ottla_sip_absorb(uint64_t v[4], uint64_t word) {
    v[3] ^= word;
    ottla_sip_round(v);
    ottla_sip_round(v);
    v[0] ^= word;
}

static inline uint64_t ottla_sip_squeeze(uint64_t v[4]) {
    for (int round = 0; round < 4; round++) ottla_sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static inline ottla_digest ottla_digest_of(const uint64_t secret[2], const uint8_t *at, size_t size) {
    uint64_t v[4] = {
        secret[0] ^ 0x736f6d6570736575u,
        secret[1] ^ 0x646f72616e646f6du ^ 0xee,
        secret[0] ^ 0x6c7967656e657261u,
        secret[1] ^ 0x7465646279746573u,
    };
    size_t left = size;
    for (; left >= 8; left -= 8, at += 8) ottla_sip_absorb(v, ottla_load_le(at, 8));
    ottla_sip_absorb(v, (uint64_t)size << 56 | (left ? ottla_load_le(at, left) : 0));
    ottla_digest digest;
    v[2] ^= 0xee;
    digest.low = ottla_sip_squeeze(v);
    v[1] ^= 0xdd;
    digest.high = ottla_sip_squeeze(v);
    return digest;
}

/* The map: open addressing with linear probing. A slot's mark is its offset plus one; 0 means empty. */
typedef struct {
    ottla_digest digest;
    int64_t mark;
} ottla_slot;

typedef struct {
    ottla_slot *slots;
    size_t slot_count; /* as allocated now */
    size_t slot_max;
    size_t used;
    size_t used_max; /* below slot_max, so that every probe ends at an empty slot */
    uint64_t secret[2];
} ottla_offset_map;

enum { OTTLA_GROWTH = 4, OTTLA_WINDOW = 16 };

typedef enum { OTTLA_MAP_GOOD = 0, OTTLA_MAP_FULL, OTTLA_MAP_NO_MEMORY } ottla_map_finding;

static inline size_t ottla_home(const ottla_offset_map *map, ottla_digest digest) {
    return (size_t)((unsigned __int128)digest.low * map->slot_count >> 64);
}

/* The slot that has this digest, or the empty one where it belongs. */
static inline ottla_slot *ottla_find_slot(const ottla_offset_map *map, ottla_digest digest) {
    ottla_slot *slot = map->slots + ottla_home(map, digest);
    ottla_slot *end = map->slots + map->slot_count;
    while (slot->mark != 0 && (slot->digest.low != digest.low || slot->digest.high != digest.high)) {
        if (++slot == end) slot = map->slots;
    }
    return slot;
}

/* Moves everything to a table four times as large, or the largest one. */
static int ottla_grow(ottla_offset_map *map) {
    ottla_offset_map larger = *map;
    larger.slot_count = map->slot_count > map->slot_max / OTTLA_GROWTH ? map->slot_max : map->slot_count * OTTLA_GROWTH;
    larger.slots = (ottla_slot *)calloc(larger.slot_count, sizeof(ottla_slot));
    if (larger.slots == NULL) return -1;
    for (size_t at = 0; at < map->slot_count; at++) {
        if (map->slots[at].mark != 0) *ottla_find_slot(&larger, map->slots[at].digest) = map->slots[at];
    }
    free(map->slots);
    *map = larger;
    return 0;
}

static inline ottla_map_finding ottla_put(ottla_offset_map *map, ottla_digest digest, int64_t offset) {
    ottla_slot *slot = ottla_find_slot(map, digest);
    if (slot->mark == 0) {
        if (map->used >= map->used_max) return OTTLA_MAP_FULL;
        if (map->used >= map->slot_count / 2 && map->slot_count < map->slot_max) {
            if (ottla_grow(map)) return OTTLA_MAP_NO_MEMORY;
            slot = ottla_find_slot(map, digest);
        }
        slot->digest = digest;
        map->used++;
    }
    slot->mark = offset + 1;
    return OTTLA_MAP_GOOD;
}

/* Walking a batch's records, a window at a time: digests are made for the whole window before the first slot is looked
 * at, so that the memory that holds the slots is on its way meanwhile. */
typedef struct {
    const uint8_t *start;
    ottla_record record;
    ottla_digest digest;
} ottla_candidate;

typedef struct {
    const uint8_t *at, *end;
    int64_t base_offset;
    int32_t count, last_delta;
    int32_t done;  /* records read so far */
    int32_t delta; /* the last one's */
} ottla_walk;

static inline ottla_record_finding ottla_next_window(
    const ottla_offset_map *map, ottla_walk *walk, ottla_candidate *window, int *size) {
    *size = 0;
    while (*size < OTTLA_WINDOW && walk->done < walk->count) {
        ottla_candidate *found = window + *size;
        ottla_record_finding finding = ottla_read_record(walk->at, walk->end, &found->record);
        if (finding != OTTLA_RECORD_GOOD) return finding;
        if (found->record.offset_delta <= walk->delta || found->record.offset_delta > walk->last_delta)
            return OTTLA_RECORD_BAD_OFFSET;
        found->start = walk->at;
        if (map != NULL && found->record.key_size >= 0) {
            found->digest = ottla_digest_of(map->secret, found->record.key, (size_t)found->record.key_size);
            __builtin_prefetch(map->slots + ottla_home(map, found->digest));
        }
        walk->at = found->record.end;
        walk->delta = found->record.offset_delta;
        walk->done++;
        ++*size;
    }
    return *size == 0 && walk->at != walk->end ? OTTLA_RECORD_TRAILING : OTTLA_RECORD_GOOD;
}

/* Maps the keys of the records from `start_offset` on. `reached` is the first offset that found no room, if that is why
 * the walk ended. */
static ottla_record_finding ottla_map_records(
    ottla_offset_map *map, ottla_walk *walk, int64_t start_offset, int64_t *reached, ottla_map_finding *outcome) {
    ottla_candidate window[OTTLA_WINDOW];
    int size = 0;
    do {
        ottla_record_finding finding = ottla_next_window(map, walk, window, &size);
        if (finding != OTTLA_RECORD_GOOD) return finding;
        for (int at = 0; at < size; at++) {
            int64_t offset = walk->base_offset + window[at].record.offset_delta;
            if (window[at].record.key_size < 0 || offset < start_offset) continue;
            *outcome = ottla_put(map, window[at].digest, offset);
            if (*outcome != OTTLA_MAP_GOOD) {
                *reached = offset;
                return OTTLA_RECORD_GOOD;
            }
        }
    } while (size > 0);
    return OTTLA_RECORD_GOOD;
}

/* Which records stay. Records at and behind `end_offset` are beyond what the map knows. */
typedef struct {
    const ottla_offset_map *map;
    int64_t end_offset;
    int tombstones_go;
} ottla_rules;

static inline int ottla_stays(const ottla_rules *rules, const ottla_candidate *found, int64_t offset) {
    if (offset >= rules->end_offset) return 1;
    if (found->record.key_size < 0) return 0;
    if (found->record.value_size < 0 && rules->tombstones_go) return 0;
    return offset >= ottla_find_slot(rules->map, found->digest)->mark - 1;
}

static ottla_record_finding ottla_select_records(
    const ottla_rules *rules, ottla_walk *walk, ottla_selection *selection) {
    ottla_candidate window[OTTLA_WINDOW];
    int size = 0;
    do {
        ottla_record_finding finding = ottla_next_window(rules->map, walk, window, &size);
        if (finding != OTTLA_RECORD_GOOD) return finding;
        for (int at = 0; at < size; at++) {
            ottla_record *record = &window[at].record;
            int stays = ottla_stays(rules, window + at, walk->base_offset + record->offset_delta);
            selection->keeps[walk->done - size + at] = (uint8_t)stays;
            if (!stays) continue;
            if (selection->kept == 0 || record->timestamp_delta > selection->delta_max)
                selection->delta_max = record->timestamp_delta;
            selection->kept++;
            selection->bytes += (size_t)(record->end - window[at].start);
            if (record->value_size < 0) selection->tombstones = 1;
        }
    } while (size > 0);
    return OTTLA_RECORD_GOOD;
}

/* A record's timestamp delta takes ten bytes at most, and its length five. */
enum { OTTLA_SHIFT_GROWTH_BYTES = 14 };

/* The same with every timestamp delta shifted: the batch gets another base timestamp. `to` has OTTLA_SHIFT_GROWTH_BYTES
 * more room for each record. */
static inline uint8_t *ottla_shift_selected(
    uint8_t *to, const uint8_t *at, const uint8_t *end, const uint8_t *keeps, int64_t shift) {
    for (; at < end; keeps++) {
        int32_t length = 0;
        int64_t delta = 0;
        const uint8_t *body = ottla_varint(at, end, &length);
        const uint8_t *rest = ottla_varlong(body + 1, body + length, &delta);
        at = body + length;
        if (!*keeps) continue;
        delta = ottla_add64(delta, shift);
        to = ottla_put_varint(to, 1 + (int64_t)ottla_varint_size(delta) + (at - rest));
        *to++ = *body;
        to = ottla_put_varint(to, delta);
        memcpy(to, rest, (size_t)(at - rest));
        to += at - rest;
    }
    return to;
}

#endif
