/* Bytes that are read from, and bytes that are written to. */
#ifndef CHANGELOG_SINK_H
#define CHANGELOG_SINK_H

#include "grow.h"

typedef struct {
    const uint8_t *at, *end;
} span;

typedef struct {
    uint8_t *bytes;
    int64_t size, room;
} sink;

static inline int room(sink *to, int64_t more)
{
    return GROWN(to->bytes, to->room, to->size + more);
}

#endif
