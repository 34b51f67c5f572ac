/* Compares all ways to compute CRC-32C, and prints whether the processor's instruction was used. */
#include <stdio.h>

#include "ottla/records/crc32c.h"

int main(void) {
    static uint8_t data[40000];
    uint32_t seed = 1;
    for (size_t at = 0; at < sizeof data; at++) data[at] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
    if (ottla_crc32c(0, (const uint8_t *)"123456789", 9) != 0xe3069283u) return 1;
    for (size_t size = 0; size < sizeof data; size += 1 + size / 7) {
        uint32_t expected = ottla_crc32c_by_table(7, data, size);
        if (ottla_crc32c(7, data, size) != expected) return 2;
        if (ottla_crc32c_by_instruction(7, data, size) != expected) return 3;
        uint32_t joined = ottla_crc32c_joined(
            ottla_crc32c(0, data, size / 3), ottla_crc32c(0, data + size / 3, size - size / 3), size - size / 3);
        if (joined != ottla_crc32c(0, data, size)) return 4;
    }
#ifdef OTTLA_CRC_WORD
    printf("instruction %d\n", OTTLA_CRC_PRESENT() != 0);
#else
    printf("instruction 0\n");
#endif
    return 0;
}
