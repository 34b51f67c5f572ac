/* Finds fields in JSON text without building objects: one pass over the bytes, for several paths at once.
 *
 * A document that breaks JSON's grammar has no fields. What only the decoder of `evaluation.py` can judge, such as bytes
 * that are not UTF-8, half a surrogate pair or a number out of range, makes the whole document ODD: it must be asked.
 */
#ifndef OTTLA_JSON_FIELDS_H
#define OTTLA_JSON_FIELDS_H

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum {
    OTTLA_JSON_NULL,
    OTTLA_JSON_FALSE,
    OTTLA_JSON_TRUE,
    OTTLA_JSON_INTEGER,
    OTTLA_JSON_REAL,
    OTTLA_JSON_TEXT,
    OTTLA_JSON_NESTED,
    OTTLA_JSON_ODD
};

enum { OTTLA_JSON_PATHS_MAX = 64, OTTLA_JSON_DEPTH_MAX = 100, OTTLA_JSON_NUMBER_MAX = 60 };

typedef struct {
    const uint8_t *name;   /* of an object's field, UTF-8 */
    int32_t size;
    int64_t index;         /* of a list's item */
    int is_index;
} ottla_json_step;

typedef struct {
    const ottla_json_step *steps;
    int32_t count;
} ottla_json_path;

typedef struct {
    uint8_t kind;
    uint8_t is_escaped;    /* a text with backslashes */
    uint8_t is_slow;       /* a real whose digits start at `start`: the caller reads them */
    int32_t size;
    const uint8_t *start;  /* of a text, without its quotes */
    int64_t integer;
    double real;
} ottla_json_field;

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
    const ottla_json_path *paths;
    ottla_json_field *fields;
} ottla_json_reader;

enum { OTTLA_JSON_GOOD, OTTLA_JSON_BROKEN, OTTLA_JSON_UNSURE };

static inline void ottla_json_space(ottla_json_reader *reader) {
    while (reader->at < reader->end
           && (*reader->at == ' ' || *reader->at == '\n' || *reader->at == '\r' || *reader->at == '\t'))
        reader->at++;
}

/* The length of a character of two to four bytes; 0 if it is not UTF-8. */
static inline int ottla_json_wide(const uint8_t *at, const uint8_t *end) {
    uint8_t first = at[0];
    int size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || end - at < size)
        return 0;
    for (int i = 1; i < size; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    if ((first == 0xe0 && at[1] < 0xa0) || (first == 0xed && at[1] > 0x9f) || (first == 0xf0 && at[1] < 0x90)
        || (first == 0xf4 && at[1] > 0x8f))
        return 0;
    return size;
}

/* The four hexadecimal digits of an escape; -1 if they are not. */
static inline int32_t ottla_json_hex(const uint8_t *at, const uint8_t *end) {
    int32_t code = 0;
    if (end - at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        uint8_t c = at[i], low = c | 0x20;
        if (c >= '0' && c <= '9')
            code = code * 16 + (c - '0');
        else if (low >= 'a' && low <= 'f')
            code = code * 16 + (low - 'a' + 10);
        else
            return -1;
    }
    return code;
}

/* Skips plain ASCII: up to a quote, a backslash, a control character, what is not ASCII, or the end. */
static inline const uint8_t *ottla_json_plain(const uint8_t *at, const uint8_t *end) {
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'), space = _mm_set1_epi8(0x20);
    for (; end - at >= 16; at += 16) {
        __m128i word = _mm_loadu_si128((const __m128i *)at);
        // Compared as signed bytes, so that what is not ASCII is below a space, too.
        __m128i ends = _mm_or_si128(
            _mm_cmplt_epi8(word, space), _mm_or_si128(_mm_cmpeq_epi8(word, quote), _mm_cmpeq_epi8(word, slash)));
        int found = _mm_movemask_epi8(ends);
        if (found)
            return at + __builtin_ctz((unsigned)found);
    }
#else
    const uint64_t ones = 0x0101010101010101ull, highs = 0x8080808080808080ull;
    for (; end - at >= 8; at += 8) {
        uint64_t word, quote, slash;
        memcpy(&word, at, 8);
        quote = word ^ (ones * '"');
        slash = word ^ (ones * '\\');
        if (((word - ones * 0x20) | (quote - ones) | (slash - ones) | word) & highs)
            break;
    }
#endif
    while (at < end && *at >= 0x20 && *at < 0x80 && *at != '"' && *at != '\\')
        at++;
    return at;
}

/* A text from behind its quote to behind the closing one. */
static int ottla_json_text(ottla_json_reader *reader, const uint8_t **start, int32_t *size, uint8_t *is_escaped) {
    const uint8_t *at = reader->at, *end = reader->end;
    *start = at;
    *is_escaped = 0;
    for (;;) {
        at = ottla_json_plain(at, end);
        if (at >= end || *at < 0x20)
            return OTTLA_JSON_BROKEN;
        if (*at == '"') {
            *size = (int32_t)(at - *start);
            reader->at = at + 1;
            return OTTLA_JSON_GOOD;
        }
        if (*at >= 0x80) {
            int wide = ottla_json_wide(at, end);
            if (!wide)
                return OTTLA_JSON_UNSURE;
            at += wide;
            continue;
        }
        *is_escaped = 1;
        if (end - at < 2)
            return OTTLA_JSON_BROKEN;
        if (at[1] != 'u') {
            if (!at[1] || !strchr("\"\\/bfnrt", at[1]))
                return OTTLA_JSON_BROKEN;
            at += 2;
            continue;
        }
        int32_t code = ottla_json_hex(at + 2, end);
        if (code < 0)
            return OTTLA_JSON_BROKEN;
        at += 6;
        if (code >= 0xd800 && code < 0xe000) {
            if (code >= 0xdc00 || end - at < 6 || at[0] != '\\' || at[1] != 'u')
                return OTTLA_JSON_UNSURE;
            code = ottla_json_hex(at + 2, end);
            if (code < 0xdc00 || code >= 0xe000)
                return OTTLA_JSON_UNSURE;
            at += 6;
        }
    }
}

/* The characters of a text that `ottla_json_text` has accepted. Returns their bytes, which are never more. */
static int32_t ottla_json_unescape(const uint8_t *at, int32_t size, uint8_t *into) {
    const uint8_t *end = at + size;
    uint8_t *to = into;
    while (at < end) {
        if (*at != '\\') {
            *to++ = *at++;
            continue;
        }
        uint8_t c = at[1];
        if (c != 'u') {
            *to++ = c == 'b' ? '\b' : c == 'f' ? '\f' : c == 'n' ? '\n' : c == 'r' ? '\r' : c == 't' ? '\t' : c;
            at += 2;
            continue;
        }
        uint32_t code = (uint32_t)ottla_json_hex(at + 2, end);
        at += 6;
        if (code >= 0xd800 && code < 0xdc00) {
            code = 0x10000 + ((code - 0xd800) << 10) + ((uint32_t)ottla_json_hex(at + 2, end) - 0xdc00);
            at += 6;
        }
        if (code < 0x80) {
            *to++ = (uint8_t)code;
        } else if (code < 0x800) {
            *to++ = (uint8_t)(0xc0 | code >> 6);
            *to++ = (uint8_t)(0x80 | (code & 0x3f));
        } else if (code < 0x10000) {
            *to++ = (uint8_t)(0xe0 | code >> 12);
            *to++ = (uint8_t)(0x80 | (code >> 6 & 0x3f));
            *to++ = (uint8_t)(0x80 | (code & 0x3f));
        } else {
            *to++ = (uint8_t)(0xf0 | code >> 18);
            *to++ = (uint8_t)(0x80 | (code >> 12 & 0x3f));
            *to++ = (uint8_t)(0x80 | (code >> 6 & 0x3f));
            *to++ = (uint8_t)(0x80 | (code & 0x3f));
        }
    }
    return (int32_t)(to - into);
}

static const double OTTLA_JSON_TENS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                         1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* A number. Integers have up to 18 digits. A real is exact if its digits and its power of ten are exact doubles. */
static int ottla_json_number(ottla_json_reader *reader, ottla_json_field *field) {
    const uint8_t *start = reader->at, *at = start, *end = reader->end;
    int64_t digits = 0;
    int32_t count = 0, power = 0, exponent = 0, is_real = 0;
    int is_negative = *at == '-', is_small = 0;
    at += is_negative;
    if (at >= end || *at < '0' || *at > '9')
        return OTTLA_JSON_BROKEN;
    if (*at == '0' && end - at > 1 && at[1] >= '0' && at[1] <= '9')
        return OTTLA_JSON_BROKEN;
    for (; at < end && *at >= '0' && *at <= '9'; at++, count++)
        if (count < 18)
            digits = digits * 10 + (*at - '0');
    if (at < end && *at == '.') {
        is_real = 1;
        at++;
        if (at >= end || *at < '0' || *at > '9')
            return OTTLA_JSON_BROKEN;
        for (; at < end && *at >= '0' && *at <= '9'; at++, count++, power--)
            if (count < 18)
                digits = digits * 10 + (*at - '0');
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        is_real = 1;
        at++;
        if (at < end && (*at == '+' || *at == '-'))
            is_small = *at++ == '-';
        if (at >= end || *at < '0' || *at > '9')
            return OTTLA_JSON_BROKEN;
        for (; at < end && *at >= '0' && *at <= '9'; at++)
            if (exponent < 10000)
                exponent = exponent * 10 + (*at - '0');
    }
    reader->at = at;
    if ((!is_real && count > 18) || exponent > 200 || at - start > OTTLA_JSON_NUMBER_MAX)
        return OTTLA_JSON_UNSURE;
    field->kind = is_real ? OTTLA_JSON_REAL : OTTLA_JSON_INTEGER;
    field->integer = is_negative ? -digits : digits;
    field->is_slow = 0;
    if (!is_real)
        return OTTLA_JSON_GOOD;
    power += is_small ? -exponent : exponent;
    field->is_slow = count > 18 || digits > ((int64_t)1 << 53) || power > 22 || power < -22;
    field->start = start;
    field->size = (int32_t)(at - start);
    if (!field->is_slow) {
        double whole = (double)digits;
        whole = power < 0 ? whole / OTTLA_JSON_TENS[-power] : whole * OTTLA_JSON_TENS[power];
        field->real = is_negative ? -whole : whole;
    }
    return OTTLA_JSON_GOOD;
}

static int ottla_json_word(ottla_json_reader *reader, const char *word, int32_t size) {
    if (reader->end - reader->at < size || memcmp(reader->at, word, (size_t)size))
        return OTTLA_JSON_BROKEN;
    reader->at += size;
    return OTTLA_JSON_GOOD;
}

static int ottla_json_is_named(const ottla_json_step *step, const uint8_t *name, int32_t size, int is_escaped) {
    uint8_t plain[1024];
    if (!is_escaped)
        return size == step->size && !memcmp(name, step->name, (size_t)size);
    if (size > (int32_t)sizeof(plain))
        return -1;
    size = ottla_json_unescape(name, size, plain);
    return size == step->size && !memcmp(plain, step->name, (size_t)size);
}

/* Reads a value that the paths of `wanted` (a bit for each) lead to, `depth` steps from the top. */
static int ottla_json_value(ottla_json_reader *reader, uint64_t wanted, int32_t depth) {
    ottla_json_field found;
    const uint8_t *name;
    int64_t index = 0;
    int32_t size;
    uint64_t inner, left;
    uint8_t is_escaped;
    int state = OTTLA_JSON_GOOD, is_list;
    if (depth > OTTLA_JSON_DEPTH_MAX)
        return OTTLA_JSON_UNSURE;
    ottla_json_space(reader);
    if (reader->at >= reader->end)
        return OTTLA_JSON_BROKEN;
    found.kind = OTTLA_JSON_NULL;
    found.is_escaped = found.is_slow = 0;
    switch (*reader->at) {
    case '"':
        reader->at++;
        found.kind = OTTLA_JSON_TEXT;
        state = ottla_json_text(reader, &found.start, &found.size, &found.is_escaped);
        break;
    case 't':
        found.kind = OTTLA_JSON_TRUE;
        state = ottla_json_word(reader, "true", 4);
        break;
    case 'f':
        found.kind = OTTLA_JSON_FALSE;
        state = ottla_json_word(reader, "false", 5);
        break;
    case 'n':
        state = ottla_json_word(reader, "null", 4);
        break;
    case '{':
    case '[':
        is_list = *reader->at == '[';
        found.kind = OTTLA_JSON_NESTED;
        reader->at++;
        ottla_json_space(reader);
        if (reader->at < reader->end && *reader->at == (is_list ? ']' : '}')) {
            reader->at++;
            break;
        }
        for (;; index++) {
            inner = 0;
            if (is_list) {
                for (left = wanted; left; left &= left - 1) {
                    const ottla_json_path *path = &reader->paths[__builtin_ctzll(left)];
                    if (path->count > depth && path->steps[depth].is_index) {
                        // From the end: only known when all items are read.
                        if (path->steps[depth].index < 0)
                            return OTTLA_JSON_UNSURE;
                        if (path->steps[depth].index == index)
                            inner |= left & -left;
                    }
                }
            } else {
                ottla_json_space(reader);
                if (reader->at >= reader->end || *reader->at != '"')
                    return OTTLA_JSON_BROKEN;
                reader->at++;
                state = ottla_json_text(reader, &name, &size, &is_escaped);
                if (state)
                    return state;
                ottla_json_space(reader);
                if (reader->at >= reader->end || *reader->at != ':')
                    return OTTLA_JSON_BROKEN;
                reader->at++;
                for (left = wanted; left; left &= left - 1) {
                    int number = __builtin_ctzll(left);
                    const ottla_json_path *path = &reader->paths[number];
                    if (path->count <= depth)
                        continue;
                    int is_named = ottla_json_is_named(&path->steps[depth], name, size, is_escaped);
                    if (is_named < 0)
                        return OTTLA_JSON_UNSURE;
                    if (is_named) {
                        // Of fields with the same name, the last one counts.
                        reader->fields[number].kind = OTTLA_JSON_NULL;
                        inner |= left & -left;
                    }
                }
            }
            state = ottla_json_value(reader, inner, depth + 1);
            if (state)
                return state;
            ottla_json_space(reader);
            if (reader->at >= reader->end)
                return OTTLA_JSON_BROKEN;
            if (*reader->at == (is_list ? ']' : '}')) {
                reader->at++;
                break;
            }
            if (*reader->at++ != ',')
                return OTTLA_JSON_BROKEN;
        }
        break;
    default:
        state = *reader->at == '-' || (*reader->at >= '0' && *reader->at <= '9') ? ottla_json_number(reader, &found)
                                                                                : OTTLA_JSON_BROKEN;
    }
    if (state)
        return state;
    for (left = wanted; left; left &= left - 1)
        if (reader->paths[__builtin_ctzll(left)].count == depth)
            reader->fields[__builtin_ctzll(left)] = found;
    return OTTLA_JSON_GOOD;
}

/* The fields of one document; `fields` has one for each path. */
static void ottla_json_document(
    const uint8_t *data, int32_t size, const ottla_json_path *paths, int32_t count, ottla_json_field *fields) {
    ottla_json_reader reader = {data, data + size, paths, fields};
    int state;
    for (int32_t i = 0; i < count; i++)
        fields[i].kind = OTTLA_JSON_NULL;
    state = ottla_json_value(&reader, count == OTTLA_JSON_PATHS_MAX ? ~(uint64_t)0 : ((uint64_t)1 << count) - 1, 0);
    if (!state) {
        ottla_json_space(&reader);
        state = reader.at == reader.end ? OTTLA_JSON_GOOD : OTTLA_JSON_BROKEN;
    }
    if (state)
        for (int32_t i = 0; i < count; i++)
            fields[i].kind = state == OTTLA_JSON_BROKEN ? OTTLA_JSON_NULL : OTTLA_JSON_ODD;
}

#endif
