/* A buffer that grows, and a copy that is quick for short fields; for kernels that do not hold the GIL. */
#ifndef OTTLA_GROWABLE_H
#define OTTLA_GROWABLE_H

#include <stdint.h>
#include <string.h>

/* Room behind the last byte in use, so that a copy may overshoot. */
#define OTTLA_SLACK_BYTES 32

typedef struct {
    uint8_t *data;
    size_t size;
    size_t room;
} ottla_growable;

/* Copies a field. Where both sides have slack behind it, whole blocks go over without asking for the exact size. */
static inline void ottla_copy(uint8_t *to, const uint8_t *from, size_t size, const uint8_t *from_end) {
    if (size <= 256 && (size_t)(from_end - from) >= size + OTTLA_SLACK_BYTES) {
        for (size_t done = 0; done < size; done += OTTLA_SLACK_BYTES) memcpy(to + done, from + done, OTTLA_SLACK_BYTES);
    } else if (size > 0) {
        memcpy(to, from, size);
    }
}

#endif
