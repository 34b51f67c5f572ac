/* CRC-32C (Castagnoli), callable from compiled loops that do not hold the GIL.
 *
 * One entry, ottla_crc32c(), which takes the fastest way that the processor has:
 * - x86-64 with AVX-512 and VPCLMULQDQ: carry-less products of 256 bytes at a time.
 * - x86-64 with SSE 4.2, and arm64 with CRC32: the CRC instruction. It has a latency of three cycles but can
 *   start every cycle, so long inputs are cut into three stretches that advance together; their sums are joined by "as
 *   if followed by N zero bytes" tables.
 * - Everywhere else: eight tables take eight bytes at a time.
 * All tables are computed when the library is loaded.
 *
 * ottla_crc32c_joined() computes the CRC of two stretches from the CRC of each.
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
static uint32_t ottla_crc_zeros[64]; /* x^(2^n): the factor that stands for 2^n zero bits */

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

/* x^exponent modulo ours. */
static inline uint32_t ottla_crc_power(uint64_t exponent) {
    uint32_t power = 0x80000000u;
    for (int bit = 0; exponent != 0; exponent >>= 1, bit++) {
        if (exponent & 1) power = ottla_crc_product(ottla_crc_zeros[bit], power);
    }
    return power;
}

/* A CRC register after that many zero bytes: one product for each bit of their number. */
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
#elif defined(__aarch64__) && defined(__GNUC__)
/* The instruction is optional in ARMv8.0, which wheels are compiled for, so it is named by its mnemonic, and the
 * processor is asked for it. */
#define OTTLA_CRC_TARGET
static inline uint64_t ottla_crc_word(uint64_t crc, uint64_t word) {
    uint32_t sum = (uint32_t)crc;
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(sum) : "r"(word));
    return sum;
}

static inline uint32_t ottla_crc_byte(uint32_t crc, uint8_t byte) {
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)byte));
    return crc;
}

#define OTTLA_CRC_WORD(crc, word) ottla_crc_word((crc), (word))
#define OTTLA_CRC_BYTE(crc, byte) ottla_crc_byte((crc), (byte))
#if defined(__linux__)
#include <sys/auxv.h>
#define OTTLA_CRC_PRESENT() ((getauxval(AT_HWCAP) & (1ul << 7)) != 0) /* HWCAP_CRC32 */
#elif defined(__APPLE__)
#define OTTLA_CRC_PRESENT() 1 /* every Apple processor has it */
#else
#define OTTLA_CRC_PRESENT() 0
#endif
#endif

#ifdef OTTLA_CRC_WORD
static inline uint64_t ottla_crc_load(const uint8_t *data) {
    uint64_t word;
    memcpy(&word, data, 8);
    return word;
}

/* Both kinds of processor are little-endian, which is the byte order that the instruction expects. */
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

#if defined(__x86_64__) && defined(__GNUC__)
#define OTTLA_CRC_VECTORS
#define OTTLA_CRC_VECTORS_TARGET __attribute__((target("sse4.2,avx512f,vpclmulqdq")))
#define OTTLA_CRC_VECTORS_PRESENT() \
    (OTTLA_CRC_PRESENT() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq"))
#define OTTLA_CRC_VECTORS_MIN 1024u /* below this the instruction is as fast */

static uint64_t ottla_crc_fold_256[2], ottla_crc_fold_64[2]; /* factors that move a lane by 256 and 64 bytes */

/* The polynomial that 128 bits stand for, moved on: its two halves times x^(64 + bits) and x^bits, modulo ours. A
 * carry-less product of reflected numbers comes out times x, hence one less each. */
static void ottla_crc_fill_fold(uint64_t fold[2], uint64_t bytes) {
    fold[0] = (uint64_t)ottla_crc_power(8 * bytes + 63) << 32;
    fold[1] = (uint64_t)ottla_crc_power(8 * bytes - 1) << 32;
}

OTTLA_CRC_VECTORS_TARGET static inline __m512i ottla_crc_folded(__m512i sum, __m512i fold, __m512i next) {
    __m512i high = _mm512_clmulepi64_epi128(sum, fold, 0x00), low = _mm512_clmulepi64_epi128(sum, fold, 0x11);
    return _mm512_ternarylogic_epi64(high, low, next, 0x96); /* the XOR of all three */
}

/* Four registers of 64 bytes go through the data side by side. Each step moves the sum behind the next 256 bytes, by
 * carry-less products, and adds them. What is left has the same CRC as all that was read. */
OTTLA_CRC_VECTORS_TARGET static uint32_t ottla_crc_by_vectors(uint32_t crc, const uint8_t *data, size_t size) {
    if (size < OTTLA_CRC_VECTORS_MIN) return ottla_crc_by_instruction(crc, data, size);
    __m512i fold = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)ottla_crc_fold_256));
    __m512i first = _mm512_xor_si512(
        _mm512_loadu_si512(data), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    __m512i second = _mm512_loadu_si512(data + 64), third = _mm512_loadu_si512(data + 128);
    __m512i fourth = _mm512_loadu_si512(data + 192);
    for (data += 256, size -= 256; size >= 256; data += 256, size -= 256) {
        first = ottla_crc_folded(first, fold, _mm512_loadu_si512(data));
        second = ottla_crc_folded(second, fold, _mm512_loadu_si512(data + 64));
        third = ottla_crc_folded(third, fold, _mm512_loadu_si512(data + 128));
        fourth = ottla_crc_folded(fourth, fold, _mm512_loadu_si512(data + 192));
    }
    fold = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)ottla_crc_fold_64));
    second = ottla_crc_folded(first, fold, second);
    third = ottla_crc_folded(second, fold, third);
    fourth = ottla_crc_folded(third, fold, fourth);
    uint8_t sum[64];
    _mm512_storeu_si512(sum, fourth);
    return ottla_crc_by_instruction(ottla_crc_by_instruction(0, sum, sizeof sum), data, size);
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
#ifdef OTTLA_CRC_VECTORS
    ottla_crc_fill_fold(ottla_crc_fold_256, 256);
    ottla_crc_fill_fold(ottla_crc_fold_64, 64);
    if (OTTLA_CRC_VECTORS_PRESENT()) ottla_crc_best = ottla_crc_by_vectors;
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

/* The slower ways, so that tests reach them on a machine that has a faster one. */
static inline uint32_t ottla_crc32c_by_table(uint32_t crc, const uint8_t *data, size_t size) {
    return ~ottla_crc_by_table(~crc, data, size);
}

static inline uint32_t ottla_crc32c_by_instruction(uint32_t crc, const uint8_t *data, size_t size) {
#ifdef OTTLA_CRC_WORD
    if (OTTLA_CRC_PRESENT()) return ~ottla_crc_by_instruction(~crc, data, size);
#endif
    return ~ottla_crc_by_table(~crc, data, size);
}

#endif
