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

enum { OTTLA_JSON_PATHS_MAX = 64, OTTLA_JSON_DEPTH_MAX = 100, OTTLA_JSON_NUMBER_MAX = 60, OTTLA_JSON_KNOWN_MAX = 64 };

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
    uint8_t is_escaped;        /* a text with backslashes */
    uint8_t is_slow;           /* a real that has only `start` and `size`: the caller reads its digits */
    int32_t size;
    union {
        const uint8_t *start;  /* of a text, without its quotes */
        int64_t integer;
        double real;
    };
} ottla_json_field;

enum { OTTLA_JSON_GOOD, OTTLA_JSON_BROKEN, OTTLA_JSON_UNSURE };

/* A name as an earlier document has it, with all that is written between two values: its comma, spaces and colon. Most
 * documents of a topic have the same names in the same order: comparing them is faster than reading them. */
typedef struct {
    const uint8_t *start;
    int32_t size;              /* 0 if there is none yet */
    int16_t depth;
    int16_t is_first;          /* the first name of its object: no comma before it */
    uint64_t outer;            /* the paths that go on in the object, and those of them in the field */
    uint64_t inner;
} ottla_json_known;

typedef struct {
    const uint8_t *at;
    const uint8_t *end;        /* of the document */
    const uint8_t *data_end;   /* of what can be read without a fault, never before `end` */
    const ottla_json_path *paths;
    ottla_json_field *fields;
    ottla_json_known *known;   /* `OTTLA_JSON_KNOWN_MAX`, in the order of names in a document */
} ottla_json_reader;

static inline void ottla_json_space(ottla_json_reader *reader) {
    const uint8_t *at = reader->at, *end = reader->end;
    while (at < end && *at <= ' ' && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    reader->at = at;
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
static inline const uint8_t *ottla_json_plain(const uint8_t *at, const ottla_json_reader *reader) {
    const uint8_t *end = reader->end;
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'), space = _mm_set1_epi8(0x20);
    for (; at < end && reader->data_end - at >= 16; at += 16) {
        __m128i word = _mm_loadu_si128((const __m128i *)at);
        // Compared as signed bytes, so that what is not ASCII is below a space, too.
        __m128i ends = _mm_or_si128(
            _mm_cmplt_epi8(word, space), _mm_or_si128(_mm_cmpeq_epi8(word, quote), _mm_cmpeq_epi8(word, slash)));
        int found = _mm_movemask_epi8(ends);
        if (found) {
            at += __builtin_ctz((unsigned)found);
            return at < end ? at : end;
        }
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
    return at < end ? at : end;
}

/* The rest of a text from the first byte on that is not plain ASCII, to behind its closing quote. */
static int ottla_json_rest(ottla_json_reader *reader, const uint8_t *at, ottla_json_field *text) {
    const uint8_t *end = reader->end;
    for (;; at = ottla_json_plain(at, reader)) {
        if (at >= end || *at < 0x20)
            return OTTLA_JSON_BROKEN;
        if (*at == '"') {
            text->size = (int32_t)(at - text->start);
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
        text->is_escaped = 1;
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

/* A text from its quote to behind the closing one. Most texts are plain. */
static inline int ottla_json_text(ottla_json_reader *reader, ottla_json_field *text) {
    const uint8_t *start = reader->at + 1, *at = ottla_json_plain(start, reader);
    text->kind = OTTLA_JSON_TEXT;
    text->is_escaped = 0;
    text->start = start;
    if (at < reader->end && *at == '"') {
        text->size = (int32_t)(at - start);
        reader->at = at + 1;
        return OTTLA_JSON_GOOD;
    }
    return ottla_json_rest(reader, at, text);
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

/* The rest of a number behind its first digits: a fraction, an exponent, or more digits than an integer may have. A real
 * is exact if its digits and its power of ten are exact doubles. */
static int ottla_json_real(
    ottla_json_reader *reader, const uint8_t *at, uint64_t digits, int is_negative, ottla_json_field *number) {
    const uint8_t *start = reader->at, *end = reader->end;
    int64_t count = at - start - is_negative;
    int32_t power = 0, exponent = 0;
    int is_small = 0, is_real = 0;
    for (; at < end && *at >= '0' && *at <= '9'; at++)
        count++;
    if (at < end && *at == '.') {
        is_real = 1;
        at++;
        if (at >= end || *at < '0' || *at > '9')
            return OTTLA_JSON_BROKEN;
        for (; at < end && *at >= '0' && *at <= '9'; at++, count++)
            if (count < 18) {
                digits = digits * 10 + (*at - '0');
                power--;
            }
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
    if (!is_real || exponent > 200 || at - start > OTTLA_JSON_NUMBER_MAX)
        return OTTLA_JSON_UNSURE;
    power += is_small ? -exponent : exponent;
    number->kind = OTTLA_JSON_REAL;
    number->is_slow = count > 18 || digits > (uint64_t)1 << 53 || power > 22 || power < -22;
    number->size = (int32_t)(at - start);
    if (number->is_slow) {
        number->start = start;
    } else {
        double whole = (double)digits;
        whole = power < 0 ? whole / OTTLA_JSON_TENS[-power] : whole * OTTLA_JSON_TENS[power];
        number->real = is_negative ? -whole : whole;
    }
    return OTTLA_JSON_GOOD;
}

/* A number. Integers have up to 18 digits; they are what most numbers are. */
static inline int ottla_json_number(ottla_json_reader *reader, ottla_json_field *number) {
    const uint8_t *at = reader->at, *end = reader->end, *first;
    int is_negative = *at == '-';
    uint64_t digits = 0;
    first = at += is_negative;
    while (at < end && *at >= '0' && *at <= '9' && at - first < 18)
        digits = digits * 10 + (*at++ - '0');
    if (at == first || (*first == '0' && at - first > 1))
        return OTTLA_JSON_BROKEN;
    if (at < end && ((*at >= '0' && *at <= '9') || *at == '.' || (*at | 0x20) == 'e'))
        return ottla_json_real(reader, at, digits, is_negative, number);
    number->kind = OTTLA_JSON_INTEGER;
    number->integer = is_negative ? -(int64_t)digits : (int64_t)digits;
    reader->at = at;
    return OTTLA_JSON_GOOD;
}

static inline int ottla_json_word(ottla_json_reader *reader, const char *word, int32_t size) {
    if (reader->end - reader->at < size || memcmp(reader->at, word, (size_t)size))
        return OTTLA_JSON_BROKEN;
    reader->at += size;
    return OTTLA_JSON_GOOD;
}

/* A value that is neither an object nor a list. */
static inline int ottla_json_leaf(ottla_json_reader *reader, ottla_json_field *leaf) {
    switch (*reader->at) {
    case '"':
        return ottla_json_text(reader, leaf);
    case 't':
        leaf->kind = OTTLA_JSON_TRUE;
        return ottla_json_word(reader, "true", 4);
    case 'f':
        leaf->kind = OTTLA_JSON_FALSE;
        return ottla_json_word(reader, "false", 5);
    case 'n':
        leaf->kind = OTTLA_JSON_NULL;
        return ottla_json_word(reader, "null", 4);
    default:
        return ottla_json_number(reader, leaf);
    }
}

/* Whether a name is that of a step; -1 if it cannot be said. */
static inline int ottla_json_is_named(const ottla_json_step *step, const ottla_json_field *name) {
    uint8_t plain[1024];
    if (!name->is_escaped)
        return name->size == step->size && (!step->size || *name->start == *step->name)
               && !memcmp(name->start, step->name, (size_t)step->size);
    if (name->size > (int32_t)sizeof(plain))
        return -1;
    return ottla_json_unescape(name->start, name->size, plain) == step->size
           && !memcmp(plain, step->name, (size_t)step->size);
}

/* The name of an object's field, its colon, and the paths of `outer` that go on in it. */
static int ottla_json_name(ottla_json_reader *reader, uint64_t outer, int32_t depth, uint64_t *inner) {
    ottla_json_field name;
    int state;
    ottla_json_space(reader);
    if (reader->at >= reader->end || *reader->at != '"')
        return OTTLA_JSON_BROKEN;
    state = ottla_json_text(reader, &name);
    if (state)
        return state;
    ottla_json_space(reader);
    if (reader->at >= reader->end || *reader->at != ':')
        return OTTLA_JSON_BROKEN;
    reader->at++;
    ottla_json_space(reader);
    *inner = 0;
    for (; outer; outer &= outer - 1) {
        int is_named = ottla_json_is_named(&reader->paths[__builtin_ctzll(outer)].steps[depth], &name);
        if (is_named < 0)
            return OTTLA_JSON_UNSURE;
        if (is_named)
            *inner |= outer & -outer;
    }
    return OTTLA_JSON_GOOD;
}

/* Whether the next bytes are those of a known name. */
static inline int ottla_json_is_known(const ottla_json_reader *reader, const ottla_json_known *known) {
#ifdef __SSE2__
    // The known name is before this place, so as much can be read from there.
    if (known->size <= 16 && reader->data_end - reader->at >= 16) {
        __m128i here = _mm_loadu_si128((const __m128i *)reader->at);
        __m128i there = _mm_loadu_si128((const __m128i *)known->start);
        unsigned same = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(here, there)), wanted = (1u << known->size) - 1;
        return (same & wanted) == wanted && reader->end - reader->at >= known->size;
    }
#endif
    return reader->end - reader->at >= known->size && !memcmp(reader->at, known->start, (size_t)known->size);
}

/* What is between two values of an object, up to the next value: a comma unless it `is_first`, and a name. `number` is
 * the name's place among those of the document. */
static inline int ottla_json_next_name(
    ottla_json_reader *reader, int32_t number, int is_first, uint64_t outer, int32_t depth, uint64_t *inner) {
    ottla_json_known *known = &reader->known[number < OTTLA_JSON_KNOWN_MAX ? number : OTTLA_JSON_KNOWN_MAX - 1];
    if (known->size && known->depth == depth && known->is_first == is_first && known->outer == outer
        && ottla_json_is_known(reader, known)) {
        reader->at += known->size;
        *inner = known->inner;
    } else {
        const uint8_t *start = reader->at;
        int state;
        if (!is_first && *reader->at++ != ',')
            return OTTLA_JSON_BROKEN;
        state = ottla_json_name(reader, outer, depth, inner);
        if (state)
            return state;
        *known = (ottla_json_known){
            start, (int32_t)(reader->at - start), (int16_t)depth, (int16_t)is_first, outer, *inner};
    }
    // Of fields with the same name, the last one counts.
    for (uint64_t left = *inner; left; left &= left - 1)
        reader->fields[__builtin_ctzll(left)].kind = OTTLA_JSON_NULL;
    return OTTLA_JSON_GOOD;
}

/* The paths of `wanted` that go on in an item of a list. */
static inline int ottla_json_item(
    const ottla_json_path *paths, uint64_t wanted, int32_t depth, int64_t index, uint64_t *inner) {
    *inner = 0;
    for (; wanted; wanted &= wanted - 1) {
        const ottla_json_step *step = &paths[__builtin_ctzll(wanted)].steps[depth];
        if (!step->is_index)
            continue;
        // From the end: only known when all items are read.
        if (step->index < 0)
            return OTTLA_JSON_UNSURE;
        if (step->index == index)
            *inner |= wanted & -wanted;
    }
    return OTTLA_JSON_GOOD;
}

/* Reads one document; `wanted` has a bit for each path that goes on in the value that is read next. */
static inline int ottla_json_read(ottla_json_reader reader, uint64_t wanted) {
    struct {
        uint64_t wanted;
        int64_t index;         /* of the item that is read; -1 in an object */
    } levels[OTTLA_JSON_DEPTH_MAX], *level;
    ottla_json_field found;
    int32_t depth = 0, names = 0;
    int state, is_opened;
    for (;;) {
        ottla_json_space(&reader);
        if (reader.at >= reader.end)
            return OTTLA_JSON_BROKEN;
        found.is_escaped = found.is_slow = 0;
        found.kind = OTTLA_JSON_NESTED;
        is_opened = *reader.at == '{' || *reader.at == '[';
        state = is_opened ? OTTLA_JSON_GOOD : ottla_json_leaf(&reader, &found);
        if (state)
            return state;
        for (uint64_t left = wanted; left; left &= left - 1) {
            int number = __builtin_ctzll(left);
            if (reader.paths[number].count == depth) {
                reader.fields[number] = found;
                wanted ^= left & -left;
            }
        }
        if (is_opened) {
            if (depth == OTTLA_JSON_DEPTH_MAX)
                return OTTLA_JSON_UNSURE;
            levels[depth].wanted = wanted;
            levels[depth++].index = *reader.at++ == '[' ? 0 : -1;
        }
        for (;; is_opened = 0) {
            ottla_json_space(&reader);
            if (!depth)
                return reader.at == reader.end ? OTTLA_JSON_GOOD : OTTLA_JSON_BROKEN;
            level = &levels[depth - 1];
            if (reader.at >= reader.end)
                return OTTLA_JSON_BROKEN;
            if (*reader.at != (level->index < 0 ? '}' : ']'))
                break;
            reader.at++;
            depth--;
        }
        if (level->index < 0) {
            state = ottla_json_next_name(&reader, names++, is_opened, level->wanted, depth - 1, &wanted);
        } else {
            if (!is_opened) {
                if (*reader.at++ != ',')
                    return OTTLA_JSON_BROKEN;
                level->index++;
            }
            state = ottla_json_item(reader.paths, level->wanted, depth - 1, level->index, &wanted);
        }
        if (state)
            return state;
    }
}

/* The fields of `count` documents, that of a path behind the other; those of a document without a mark are NULL. Without
 * `marks`, all are read. The offsets ascend and stay within the data. */
static void ottla_json_documents(
    const uint8_t *data, int64_t data_size, const int32_t *offsets, int64_t count, const uint8_t *marks,
    const ottla_json_path *paths, int32_t path_count, ottla_json_field *fields) {
    const uint64_t all = path_count == OTTLA_JSON_PATHS_MAX ? ~(uint64_t)0 : ((uint64_t)1 << path_count) - 1;
    ottla_json_known known[OTTLA_JSON_KNOWN_MAX];
    for (int i = 0; i < OTTLA_JSON_KNOWN_MAX; i++)
        known[i].size = 0;
    for (int64_t row = 0; row < count; row++, fields += path_count) {
        ottla_json_reader reader = {data + offsets[row], data + offsets[row + 1], data + data_size, paths, fields, known};
        int state = OTTLA_JSON_GOOD;
        for (int32_t i = 0; i < path_count; i++)
            fields[i].kind = OTTLA_JSON_NULL;
        if (!marks || marks[row])
            state = ottla_json_read(reader, all);
        if (state)
            for (int32_t i = 0; i < path_count; i++)
                fields[i].kind = state == OTTLA_JSON_BROKEN ? OTTLA_JSON_NULL : OTTLA_JSON_ODD;
    }
}

#endif
