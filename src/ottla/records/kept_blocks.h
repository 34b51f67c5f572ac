/* Where the memory of growable buffers comes from. Included by packed_buffer alone, so that there is one of it.
 *
 * Large blocks that are given back are kept, up to a bound, and handed out again: a reader that decodes, uses and drops
 * one answer after the other would otherwise spend more time on the system's fresh pages than on the records.
 */
#ifndef OTTLA_KEPT_BLOCKS_H
#define OTTLA_KEPT_BLOCKS_H

#include <pthread.h>
#include <stdlib.h>

#include "growable.h"

#define OTTLA_KEPT_BLOCKS_MAX 24
#ifdef __SANITIZE_ADDRESS__
/* The sanitizer sees a write behind a buffer only if that is as small as can be, and a late use only if it is gone. */
#define OTTLA_KEPT_BYTES_MAX ((size_t)0)
#define OTTLA_ROOM_FOR(need, old_room) (need)
#else
#define OTTLA_KEPT_BYTES_MAX ((size_t)64 << 20)
#define OTTLA_ROOM_FOR(need, old_room) ((need) > 2 * (old_room) ? (need) : 2 * (old_room))
#endif
#define OTTLA_KEPT_BLOCK_BYTES_MIN ((size_t)64 << 10)

static ottla_growable ottla_kept[OTTLA_KEPT_BLOCKS_MAX];
static size_t ottla_kept_bytes;
static pthread_mutex_t ottla_kept_lock = PTHREAD_MUTEX_INITIALIZER;

/* A kept block that fits without waste. Nobody waits for the lock: whoever finds it taken goes to the allocator. */
static inline int ottla_take_kept(ottla_growable *buffer, size_t need) {
    if (need < OTTLA_KEPT_BLOCK_BYTES_MIN / 2 || pthread_mutex_trylock(&ottla_kept_lock)) return 0;
    ottla_growable *best = NULL;
    for (int index = 0; index < OTTLA_KEPT_BLOCKS_MAX; index++) {
        ottla_growable *block = &ottla_kept[index];
        if (block->room < need || block->room / 4 > need) continue;
        if (best == NULL || block->room < best->room) best = block;
    }
    if (best != NULL) {
        buffer->data = best->data;
        buffer->room = best->room;
        ottla_kept_bytes -= best->room;
        memset(best, 0, sizeof *best);
    }
    pthread_mutex_unlock(&ottla_kept_lock);
    return best != NULL;
}

/* Gives a block back, to be kept if there is a place for it. */
static inline void ottla_give_back(ottla_growable *buffer) {
    if (buffer->room >= OTTLA_KEPT_BLOCK_BYTES_MIN && pthread_mutex_trylock(&ottla_kept_lock) == 0) {
        for (int index = 0; index < OTTLA_KEPT_BLOCKS_MAX; index++) {
            if (ottla_kept[index].data != NULL || ottla_kept_bytes + buffer->room > OTTLA_KEPT_BYTES_MAX) continue;
            ottla_kept[index] = *buffer;
            ottla_kept_bytes += buffer->room;
            buffer->data = NULL;
            break;
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

/* Gives room back to the allocator where much more was reserved than is in use; best effort. */
static inline void ottla_shrink(ottla_growable *buffer) {
    if (buffer->room / 2 <= buffer->size + OTTLA_KEPT_BLOCK_BYTES_MIN) return;
    uint8_t *data = (uint8_t *)realloc(buffer->data, buffer->size + OTTLA_SLACK_BYTES);
    if (data == NULL) return;
    buffer->data = data;
    buffer->room = buffer->size + OTTLA_SLACK_BYTES;
}

#endif
