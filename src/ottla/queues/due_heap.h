/* Entries (due, offset) in a binary heap and in sorted order. Nothing here needs the GIL or allocates. */
#ifndef OTTLA_DUE_HEAP_H
#define OTTLA_DUE_HEAP_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    int64_t due, offset;
} ottla_entry;

static inline int ottla_entry_before(const ottla_entry *left, const ottla_entry *right) {
    return left->due < right->due || (left->due == right->due && left->offset < right->offset);
}

/* Moves the last entry of a heap to its place. */
static inline void ottla_heap_rise(ottla_entry *entries, size_t at) {
    ottla_entry moving = entries[at];
    while (at > 0) {
        size_t parent = (at - 1) / 2;
        if (!ottla_entry_before(&moving, entries + parent)) break;
        entries[at] = entries[parent];
        at = parent;
    }
    entries[at] = moving;
}

/* Removes the first entry of a heap of `size` entries. The hole goes down to a leaf along the smaller children, and the
 * last entry rises from there: it nearly always belongs far below. */
static inline void ottla_heap_drop_first(ottla_entry *entries, size_t size) {
    size_t last = size - 1, at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= last) break;
        if (child + 1 < last && ottla_entry_before(entries + child + 1, entries + child)) child++;
        entries[at] = entries[child];
        at = child;
    }
    entries[at] = entries[last];
    ottla_heap_rise(entries, at);
}

enum { OTTLA_SORT_BLOCK = 16 };

/* Sorts by merging; `spare` has room for as many entries. Parts that are in order already are not merged. */
static void ottla_sort_entries(ottla_entry *entries, ottla_entry *spare, size_t size) {
    for (size_t start = 0; start < size; start += OTTLA_SORT_BLOCK) {
        size_t end = size - start < OTTLA_SORT_BLOCK ? size : start + OTTLA_SORT_BLOCK;
        for (size_t at = start + 1; at < end; at++) {
            ottla_entry moving = entries[at];
            size_t to = at;
            for (; to > start && ottla_entry_before(&moving, entries + to - 1); to--) entries[to] = entries[to - 1];
            entries[to] = moving;
        }
    }
    ottla_entry *from = entries, *into = spare;
    for (size_t width = OTTLA_SORT_BLOCK; width < size; width *= 2) {
        for (size_t start = 0; start < size; start += 2 * width) {
            size_t middle = size - start < width ? size : start + width;
            size_t end = size - middle < width ? size : middle + width;
            size_t left = start, right = middle, to = start;
            if (middle == end || !ottla_entry_before(from + middle, from + middle - 1)) {
                memcpy(into + start, from + start, (end - start) * sizeof(ottla_entry));
                continue;
            }
            while (left < middle && right < end) {
                int is_right = ottla_entry_before(from + right, from + left);
                into[to++] = from[is_right ? right : left];
                right += (size_t)is_right;
                left += (size_t)!is_right;
            }
            memcpy(into + to, from + left, (middle - left) * sizeof(ottla_entry));
            to += middle - left;
            memcpy(into + to, from + right, (end - right) * sizeof(ottla_entry));
        }
        ottla_entry *swapped = from;
        from = into;
        into = swapped;
    }
    if (from != entries) memcpy(entries, from, size * sizeof(ottla_entry));
}

#endif
