/* A choice among a batch's records, and the copy of those that stay: for compaction and for expiry.
 *
 * Nothing here needs the GIL.
 */
#ifndef OTTLA_SELECTION_H
#define OTTLA_SELECTION_H

#include "record.h"

typedef struct {
    uint8_t *keeps; /* one byte per record */
    int32_t kept;
    int tombstones; /* whether any that stays is one; only compaction asks */
    int64_t delta_max; /* the largest timestamp delta of those that stay */
    size_t bytes;
} ottla_selection;

/* Copies the records that stay, as they are. `at` has been walked before, so its bounds are known to be good; `to` has
 * room for the selection's bytes. */
static inline uint8_t *ottla_copy_selected(uint8_t *to, const uint8_t *at, const uint8_t *end, const uint8_t *keeps) {
    const uint8_t *run = at; /* where the records to copy next begin */
    for (; at < end; keeps++) {
        int32_t length = 0;
        const uint8_t *after = ottla_varint(at, end, &length) + length;
        if (!*keeps) {
            memcpy(to, run, (size_t)(at - run));
            to += at - run;
            run = after;
        }
        at = after;
    }
    memcpy(to, run, (size_t)(end - run));
    return to + (end - run);
}

#endif
