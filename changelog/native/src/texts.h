/* Where a text begins: behind the one before it. */
#ifndef CHANGELOG_TEXTS_H
#define CHANGELOG_TEXTS_H

#include "api.h"

static inline int64_t start_of(const texts *of, int64_t place)
{
    return place > 0 ? of->ends[place - 1] : 0;
}

#endif
