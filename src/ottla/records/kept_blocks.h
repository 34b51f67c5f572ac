/* Where the memory of growable buffers comes from. Included by packed_buffer alone, so that there is one of it.
 *
 * Large blocks that are given back are kept, up to a bound, and handed out again: a reader that decodes, uses and drops
 * one answer after the other would otherwise spend more time on the system's fresh pages than on the records. The
 * blocks that have not been used for longest make room for others.
 */
#ifndef OTTLA_KEPT_BLOCKS_H
#define OTTLA_KEPT_BLOCKS_H

#include <pthread.h>
#include <stdlib.h>

#include "growable.h"

#define OTTLA_KEPT_BLOCKS_MAX 32
#define OTTLA_KEPT_BLOCK_BYTES_MIN ((size_t)64 << 10)
#ifdef __SANITIZE_ADDRESS__
/* The sanitizer sees a write behind a buffer only if that is as small as can be, and a late use only if it is gone. */
#define OTTLA_KEPT_BYTES_MAX ((size_t)0)
#define OTTLA_ROOM_FOR(need, old_room) (need)
#else
#define OTTLA_KEPT_BYTES_MAX ((size_t)64 << 20)
#define OTTLA_ROOM_FOR(need, old_room) ottla_rounded((need) > 2 * (old_room) ? (need) : 2 * (old_room))
#endif

typedef struct {
    ottla_growable block;
    uint64_t kept_at; /* counts what was given back */
} ottla_kept_block;

static ottla_kept_block ottla_kept[OTTLA_KEPT_BLOCKS_MAX];
static size_t ottla_kept_bytes;
static uint64_t ottla_given_back;
static pthread_mutex_t ottla_kept_lock = PTHREAD_MUTEX_INITIALIZER;

/* Large rooms come in few sizes, an eighth apart at most, so that a block also fits its successor of nearly its size. */
static inline size_t ottla_rounded(size_t need) {
    if (need < OTTLA_KEPT_BLOCK_BYTES_MIN) return need;
    size_t step = ((size_t)1 << (63 - __builtin_clzll((unsigned long long)need))) >> 3;
    return (need + step - 1) & ~(step - 1);
}

static inline void ottla_unkeep(ottla_kept_block *kept) {
    ottla_kept_bytes -= kept->block.room;
    memset(kept, 0, sizeof *kept);
}

/* A kept block that fits without waste; of several of a size the one that was used last, which the processor still has
 * near it. A caller that finds the lock taken uses the allocator. */
static inline int ottla_take_kept(ottla_growable *buffer, size_t need) {
    if (need < OTTLA_KEPT_BLOCK_BYTES_MIN / 2 || pthread_mutex_trylock(&ottla_kept_lock)) return 0;
    ottla_kept_block *best = NULL;
    for (int index = 0; index < OTTLA_KEPT_BLOCKS_MAX; index++) {
        ottla_kept_block *kept = &ottla_kept[index];
        if (kept->block.room < need || kept->block.room / 4 > need) continue;
        if (best == NULL || kept->block.room < best->block.room ||
            (kept->block.room == best->block.room && kept->kept_at > best->kept_at)) {
            best = kept;
        }
    }
    if (best != NULL) {
        buffer->data = best->block.data;
        buffer->room = best->block.room;
        ottla_unkeep(best);
    }
    pthread_mutex_unlock(&ottla_kept_lock);
    return best != NULL;
}

/* An empty place for that many bytes; the oldest blocks may have to go. Called with the lock held. */
static inline ottla_kept_block *ottla_place(size_t room) {
    while (1) {
        ottla_kept_block *empty = NULL, *oldest = NULL;
        for (int index = 0; index < OTTLA_KEPT_BLOCKS_MAX; index++) {
            ottla_kept_block *kept = &ottla_kept[index];
            if (kept->block.data == NULL) {
                empty = kept;
            } else if (oldest == NULL || kept->kept_at < oldest->kept_at) {
                oldest = kept;
            }
        }
        if (empty != NULL && ottla_kept_bytes + room <= OTTLA_KEPT_BYTES_MAX) return empty;
        if (oldest == NULL) return NULL;
        free(oldest->block.data);
        ottla_unkeep(oldest);
    }
}

/* Gives a block back, to be kept unless it is small, or larger than all that may be kept. */
static inline void ottla_give_back(ottla_growable *buffer) {
    if (buffer->room >= OTTLA_KEPT_BLOCK_BYTES_MIN && buffer->room <= OTTLA_KEPT_BYTES_MAX / 2 &&
        pthread_mutex_trylock(&ottla_kept_lock) == 0) {
        ottla_kept_block *place = ottla_place(buffer->room);
        if (place != NULL) {
            place->block = *buffer;
            place->kept_at = ++ottla_given_back;
            ottla_kept_bytes += buffer->room;
            buffer->data = NULL;
        }
        pthread_mutex_unlock(&ottla_kept_lock);
    }
    free(buffer->data);
    memset(buffer, 0, sizeof *buffer);
}

/* Makes room for `need` bytes in all; with `zeroed`, room not there before is zero. 0, or -1 without memory. */
static inline int ottla_grow(ottla_growable *buffer, size_t need, int zeroed) {
    size_t old_room = buffer->room;
    if (buffer->data != NULL || !ottla_take_kept(buffer, need)) {
        size_t room = OTTLA_ROOM_FOR(need, old_room);
        uint8_t *data = (uint8_t *)realloc(buffer->data, room);
        if (data == NULL) return -1;
        buffer->data = data;
        buffer->room = room;
    }
    if (zeroed) memset(buffer->data + old_room, 0, buffer->room - old_room);
    return 0;
}

/* Where much more was reserved than is in use, what is in use moves out and the block is free again; best effort. */
static inline void ottla_shrink(ottla_growable *buffer) {
    if (buffer->room / 2 <= buffer->size + OTTLA_KEPT_BLOCK_BYTES_MIN) return;
    ottla_growable small = {NULL, buffer->size, 0};
    if (ottla_grow(&small, buffer->size + OTTLA_SLACK_BYTES, 0)) return;
    memcpy(small.data, buffer->data, buffer->size);
    ottla_give_back(buffer);
    *buffer = small;
}

#endif
