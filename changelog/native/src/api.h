/* What Python may call. `library.py` reads this file too: each line that begins with # is left
 * out there, and the rest has to be what cffi's cdef understands.
 */
#ifndef CHANGELOG_API_H
#define CHANGELOG_API_H
#include <stddef.h>
#include <stdint.h>

/* Find librdkafka's functions through a library that is linked with it; gives the name of what is
 * missing, or NULL. To be called before any function that speaks to Kafka. */
const char *kafka_load(const char *path);

int32_t partition_of(const uint8_t *key, size_t size, int32_t partitions);

#endif
