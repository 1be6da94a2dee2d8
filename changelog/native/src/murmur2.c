#include "api.h"

/* org.apache.kafka.common.utils.Utils.murmur2, on numbers without a sign. */
static const uint32_t SEED = 0x9747B28C, MULTIPLIER = 0x5BD1E995;

static uint32_t murmur2(const uint8_t *bytes, size_t size)
{
    uint32_t value = SEED ^ (uint32_t)size;
    size_t place = 0;
    for (; place + 4 <= size; place += 4) {
        uint32_t word = (uint32_t)bytes[place] | (uint32_t)bytes[place + 1] << 8 |
                        (uint32_t)bytes[place + 2] << 16 | (uint32_t)bytes[place + 3] << 24;
        word *= MULTIPLIER;
        word = (word ^ (word >> 24)) * MULTIPLIER;
        value = (value * MULTIPLIER) ^ word;
    }
    if (place < size) {
        uint32_t tail = 0;
        for (size_t rest = size; rest-- > place;)
            tail = tail << 8 | bytes[rest];
        value = (value ^ tail) * MULTIPLIER;
    }
    value = (value ^ (value >> 13)) * MULTIPLIER;
    return value ^ (value >> 15);
}

int32_t partition_of(const uint8_t *key, size_t size, int32_t partitions)
{
    return (int32_t)((murmur2(key, size) & 0x7FFFFFFF) % (uint32_t)partitions);
}
