/* Lines of COPY's text, as the writers of bulk loads make them. */
#ifndef CHANGELOG_COPYTEXT_H
#define CHANGELOG_COPYTEXT_H

#include <stdio.h>
#include <string.h>

#include "sink.h"
#include "texts.h"

enum { MOST_COLUMNS = 1664, NUMBER_MOST = 24 };

static inline void put(sink *to, uint32_t byte)
{
    to->bytes[to->size++] = (uint8_t)byte;
}

static inline void put_all(sink *to, const void *bytes, int64_t size)
{
    memcpy(to->bytes + to->size, bytes, (size_t)size);
    to->size += size;
}

static inline void put_null(sink *to)
{
    put_all(to, "\\N", 2);
}

/* Eight letters at once. What is asked of them is 0 where none of them is such a one; a byte above
 * one that is may be told as another. */
static const uint64_t ONES = 0x0101010101010101u, TOPS = 0x8080808080808080u;

static inline uint64_t eight_letters(const uint8_t *at)
{
    uint64_t eight;
    memcpy(&eight, at, 8);
    return eight;
}

static inline uint64_t controls_of(uint64_t eight)
{
    return (eight - ONES * 0x20) & ~eight & TOPS;
}

static inline uint64_t same_of(uint64_t eight, uint8_t letter)
{
    uint64_t other = eight ^ (ONES * letter);
    return (other - ONES) & ~other & TOPS;
}

/* Write a byte, with a backslash before what ends cells and lines. */
static inline void put_letter(sink *to, uint32_t byte)
{
    switch (byte) {
    case '\n':
        put_all(to, "\\n", 2);
        break;
    case '\r':
        put_all(to, "\\r", 2);
        break;
    case '\t':
        put_all(to, "\\t", 2);
        break;
    case '\\':
        put_all(to, "\\\\", 2);
        break;
    default:
        put(to, byte);
    }
}

/* End a line; before that stand its number and `f` where numbers are wanted. */
static inline void end_line(sink *to, int64_t number, int numbered)
{
    if (numbered) {
        char said[NUMBER_MOST];
        int size = snprintf(said, sizeof said, "\t%lld\tf", (long long)number);
        put_all(to, said, size);
    }
    put(to, '\n');
}

/* Keep what was written as one text; gives 0 when there is no memory. */
static inline int ended(texts *to, const sink *out, int has_memory)
{
    to->bytes = out->bytes;
    to->room = out->room;
    if (!has_memory || !GROWN(to->ends, to->places, to->count + 1))
        return 0;
    to->ends[to->count++] = out->size;
    return 1;
}

static inline const uint8_t *digits_end(const uint8_t *at, const uint8_t *end)
{
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

/* Whether a column keeps each digit behind the point of a text, as far as a look says. */
static inline int keeps_digits(const uint8_t *at, const uint8_t *end, int32_t most, int is_moment)
{
    const uint8_t *point = end == at ? NULL : memchr(at, '.', (size_t)(end - at));
    if (!is_moment) {
        for (; at < end; at++)
            if (*at == 'e' || *at == 'E')
                return 0;
        return point == NULL || end - point - 1 <= most;
    }
    for (; at < end; at++)
        if (*at >= 0x80)
            return 0;
    if (point == NULL)
        return 1;
    const uint8_t *behind = digits_end(point + 1, end);
    if (behind == point + 1)
        return 0;
    while (behind[-1] == '0')
        behind--;
    return behind - point - 1 <= most;
}

#endif
