/* CRC-32C (Castagnoli), callable from compiled loops that do not hold the GIL.
 *
 * One entry, ottla_crc32c(). On x86-64 with SSE 4.2 and on arm64 built with CRC support it uses the processor's
 * instruction. It has a latency of three cycles but can start every cycle, so long inputs are cut into three stretches
 * that advance together; their sums are joined by "as if followed by N zero bytes" tables. Everywhere else eight tables
 * take eight bytes at a time. All tables are computed when the library is loaded.
 *
 * ottla_crc32c_joined() makes the CRC of two stretches of those of each, whatever lies between taking them.
 */
#ifndef OTTLA_CRC32C_H
#define OTTLA_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define OTTLA_CRC_POLYNOMIAL 0x82f63b78u /* reflected */
#define OTTLA_CRC_LONG 4096u             /* bytes per stretch of three */
#define OTTLA_CRC_SHORT 256u

static uint32_t ottla_crc_slices[8][256];
static uint32_t ottla_crc_after_long[4][256];
static uint32_t ottla_crc_after_short[4][256];
static uint32_t ottla_crc_zeros[64]; /* what 2^n zero bits make of a CRC, as a factor */

static uint32_t ottla_crc_by_table(uint32_t crc, const uint8_t *data, size_t size) {
    while (size >= 8) {
        uint32_t low = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        low ^= crc;
        crc = ottla_crc_slices[7][low & 0xff] ^ ottla_crc_slices[6][(low >> 8) & 0xff] ^
              ottla_crc_slices[5][(low >> 16) & 0xff] ^ ottla_crc_slices[4][low >> 24] ^
              ottla_crc_slices[3][data[4]] ^ ottla_crc_slices[2][data[5]] ^
              ottla_crc_slices[1][data[6]] ^ ottla_crc_slices[0][data[7]];
        data += 8;
        size -= 8;
    }
    while (size--) crc = ottla_crc_slices[0][(crc ^ *data++) & 0xff] ^ (crc >> 8);
    return crc;
}

/* A CRC register is linear over XOR, so the effect of N zero bytes on it is a matrix, kept as one table per byte. */
static void ottla_crc_fill_after_zeros(uint32_t table[4][256], size_t zeros) {
    static const uint8_t nothing[OTTLA_CRC_LONG];
    uint32_t bits[32];
    for (int bit = 0; bit < 32; bit++) bits[bit] = ottla_crc_by_table((uint32_t)1 << bit, nothing, zeros);
    for (int byte = 0; byte < 4; byte++) {
        for (int value = 0; value < 256; value++) {
            uint32_t sum = 0;
            for (int bit = 0; bit < 8; bit++) {
                if (value >> bit & 1) sum ^= bits[8 * byte + bit];
            }
            table[byte][value] = sum;
        }
    }
}

static inline uint32_t ottla_crc_after_zeros(const uint32_t table[4][256], uint32_t crc) {
    return table[0][crc & 0xff] ^ table[1][(crc >> 8) & 0xff] ^ table[2][(crc >> 16) & 0xff] ^ table[3][crc >> 24];
}

/* The product of two polynomials modulo ours, all reflected: the highest bit is the factor of x^0. */
static inline uint32_t ottla_crc_product(uint32_t left, uint32_t right) {
    uint32_t product = 0;
    for (; left != 0; left <<= 1) {
        if (left & 0x80000000u) product ^= right;
        right = (right >> 1) ^ (right & 1 ? OTTLA_CRC_POLYNOMIAL : 0);
    }
    return product;
}

/* What so many zero bytes make of a CRC register: a product for each bit of their number. */
static inline uint32_t ottla_crc_after(uint32_t crc, uint64_t zero_bytes) {
    for (int bit = 3; zero_bytes != 0; zero_bytes >>= 1, bit++) {
        if (zero_bytes & 1) crc = ottla_crc_product(ottla_crc_zeros[bit], crc);
    }
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define OTTLA_CRC_TARGET __attribute__((target("sse4.2")))
#define OTTLA_CRC_WORD(crc, word) _mm_crc32_u64((crc), (word))
#define OTTLA_CRC_BYTE(crc, byte) _mm_crc32_u8((crc), (byte))
#define OTTLA_CRC_PRESENT() (__builtin_cpu_init(), __builtin_cpu_supports("sse4.2"))
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define OTTLA_CRC_TARGET
#define OTTLA_CRC_WORD(crc, word) __crc32cd((uint32_t)(crc), (word))
#define OTTLA_CRC_BYTE(crc, byte) __crc32cb((crc), (byte))
#define OTTLA_CRC_PRESENT() 1
#endif

#ifdef OTTLA_CRC_WORD
static inline uint64_t ottla_crc_load(const uint8_t *data) {
    uint64_t word;
    memcpy(&word, data, 8);
    return word;
}

/* Both kinds of processor are little-endian here, which is the byte order the instruction expects. */
OTTLA_CRC_TARGET static inline uint32_t ottla_crc_three(
    uint32_t crc, const uint8_t *data, size_t stretch, const uint32_t table[4][256]) {
    uint64_t first = crc, second = 0, third = 0;
    for (const uint8_t *end = data + stretch; data < end; data += 8) {
        first = OTTLA_CRC_WORD(first, ottla_crc_load(data));
        second = OTTLA_CRC_WORD(second, ottla_crc_load(data + stretch));
        third = OTTLA_CRC_WORD(third, ottla_crc_load(data + 2 * stretch));
    }
    uint32_t joined = ottla_crc_after_zeros(table, (uint32_t)first) ^ (uint32_t)second;
    return ottla_crc_after_zeros(table, joined) ^ (uint32_t)third;
}

OTTLA_CRC_TARGET static uint32_t ottla_crc_by_instruction(uint32_t crc, const uint8_t *data, size_t size) {
    while (size >= 3 * OTTLA_CRC_LONG) {
        crc = ottla_crc_three(crc, data, OTTLA_CRC_LONG, ottla_crc_after_long);
        data += 3 * OTTLA_CRC_LONG;
        size -= 3 * OTTLA_CRC_LONG;
    }
    while (size >= 3 * OTTLA_CRC_SHORT) {
        crc = ottla_crc_three(crc, data, OTTLA_CRC_SHORT, ottla_crc_after_short);
        data += 3 * OTTLA_CRC_SHORT;
        size -= 3 * OTTLA_CRC_SHORT;
    }
    uint64_t wide = crc;
    while (size >= 8) {
        wide = OTTLA_CRC_WORD(wide, ottla_crc_load(data));
        data += 8;
        size -= 8;
    }
    crc = (uint32_t)wide;
    while (size--) crc = OTTLA_CRC_BYTE(crc, *data++);
    return crc;
}
#endif

static uint32_t (*ottla_crc_best)(uint32_t, const uint8_t *, size_t) = ottla_crc_by_table;

__attribute__((constructor)) static void ottla_crc_prepare(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (crc & 1 ? OTTLA_CRC_POLYNOMIAL : 0);
        ottla_crc_slices[0][byte] = crc;
    }
    for (int slice = 1; slice < 8; slice++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = ottla_crc_slices[slice - 1][byte];
            ottla_crc_slices[slice][byte] = ottla_crc_slices[0][crc & 0xff] ^ (crc >> 8);
        }
    }
    ottla_crc_zeros[0] = 0x40000000u;
    for (int bit = 1; bit < 64; bit++) {
        ottla_crc_zeros[bit] = ottla_crc_product(ottla_crc_zeros[bit - 1], ottla_crc_zeros[bit - 1]);
    }
#ifdef OTTLA_CRC_WORD
    ottla_crc_fill_after_zeros(ottla_crc_after_long, OTTLA_CRC_LONG);
    ottla_crc_fill_after_zeros(ottla_crc_after_short, OTTLA_CRC_SHORT);
    if (OTTLA_CRC_PRESENT()) ottla_crc_best = ottla_crc_by_instruction;
#endif
}

/* The CRC of `data`, or of what `crc` was taken of followed by `data`. */
static inline uint32_t ottla_crc32c(uint32_t crc, const uint8_t *data, size_t size) {
    return ~ottla_crc_best(~crc, data, size);
}

/* The CRC of what `first` was taken of followed by the `second_size` bytes that `second` was taken of. */
static inline uint32_t ottla_crc32c_joined(uint32_t first, uint32_t second, size_t second_size) {
    return ottla_crc_after(first, second_size) ^ second;
}

/* The same without the instruction, so that tests can reach it on any machine. */
static inline uint32_t ottla_crc32c_by_table(uint32_t crc, const uint8_t *data, size_t size) {
    return ~ottla_crc_by_table(~crc, data, size);
}

#endif
