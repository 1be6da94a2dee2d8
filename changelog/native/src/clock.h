/* Milliseconds of a clock that never goes back: for deadlines. */
#ifndef CHANGELOG_CLOCK_H
#define CHANGELOG_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t now_ms(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (int64_t)at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

#endif
