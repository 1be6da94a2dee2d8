/* Hashes of rows as PostgreSQL takes them: hash_record_extended(ROW(record_send(ROW(...))), 1).
 *
 * A row becomes the bytes that PostgreSQL's send functions make of it (record_send, numeric_send and
 * so on; pq_send* writes the highest byte first), and these are hashed by Bob Jenkins' lookup3 of
 * 2006, with a seed of 64 bits, as PostgreSQL does on a machine whose lowest byte comes first.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "api.h"
#include "grow.h"

typedef unsigned __int128 wide;

static const uint64_t SEED = 1;
static const int64_t DAYS_TO_2000 = 10957, MICROS_TO_2000 = 946684800000000;
static const uint16_t NEGATIVE = 0x4000; /* NUMERIC_NEG */
enum { MOST_GROUPS = 12 };               /* of four digits, of a number with 38 */

typedef struct {
    uint8_t *bytes;
    int64_t places, size;
} row_bytes;

static uint8_t *more(row_bytes *row, int64_t size)
{
    if (!GROWN(row->bytes, row->places, row->size + size))
        return NULL;
    uint8_t *at = row->bytes + row->size;
    row->size += size;
    return at;
}

static void big16(uint8_t *to, uint16_t value)
{
    value = __builtin_bswap16(value);
    memcpy(to, &value, sizeof value);
}

static void big32(uint8_t *to, uint32_t value)
{
    value = __builtin_bswap32(value);
    memcpy(to, &value, sizeof value);
}

static void big64(uint8_t *to, uint64_t value)
{
    value = __builtin_bswap64(value);
    memcpy(to, &value, sizeof value);
}

static uint32_t turned(uint32_t word, int bits) { return word << bits | word >> (32 - bits); }

static void mix(uint32_t *a, uint32_t *b, uint32_t *c)
{
    *a -= *c, *a ^= turned(*c, 4), *c += *b;
    *b -= *a, *b ^= turned(*a, 6), *a += *c;
    *c -= *b, *c ^= turned(*b, 8), *b += *a;
    *a -= *c, *a ^= turned(*c, 16), *c += *b;
    *b -= *a, *b ^= turned(*a, 19), *a += *c;
    *c -= *b, *c ^= turned(*b, 4), *b += *a;
}

static uint32_t word_at(const uint8_t *bytes)
{
    uint32_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

static uint64_t lookup3(const uint8_t *bytes, uint32_t size)
{
    uint32_t a = 0x9E3779B9 + size + 3923095, b = a, c = a;
    a += (uint32_t)(SEED >> 32), b += (uint32_t)SEED;
    mix(&a, &b, &c);
    for (; size >= 12; size -= 12, bytes += 12) {
        a += word_at(bytes), b += word_at(bytes + 4), c += word_at(bytes + 8);
        mix(&a, &b, &c);
    }
    uint8_t tail[12] = {0};
    memcpy(tail, bytes, size);
    /* The lowest byte of c is the size's. */
    a += word_at(tail), b += word_at(tail + 4), c += word_at(tail + 8) << 8;
    c ^= b, c -= turned(b, 14);
    a ^= c, a -= turned(c, 11);
    b ^= a, b -= turned(a, 25);
    c ^= b, c -= turned(b, 16);
    a ^= c, a -= turned(c, 4);
    b ^= a, b -= turned(a, 14);
    c ^= b, c -= turned(b, 24);
    return (uint64_t)b << 32 | c;
}

/* The next lowest digits of a number, `power` a power of ten; they are taken off. */
static uint16_t taken(wide *number, uint32_t power)
{
    if (*number >> 64 == 0) {
        uint64_t small = (uint64_t)*number;
        *number = small / power;
        return (uint16_t)(small % power);
    }
    uint16_t digits = (uint16_t)(*number % power);
    *number /= power;
    return digits;
}

/* Arrow's decimal of 128 bits, without the zeros at its end, as trim_scale() gives it. */
static int put_numeric(row_bytes *row, const uint8_t *from, int32_t scale)
{
    static const uint32_t POWERS[] = {1, 10, 100, 1000, 10000};
    wide number;
    memcpy(&number, from, sizeof number);
    int is_negative = (int)(number >> 127);
    if (is_negative)
        number = -number;
    while (scale > 0) {
        wide shorter = number;
        if (taken(&shorter, 10) != 0)
            break;
        number = shorter, scale--;
    }
    uint16_t groups[MOST_GROUPS]; /* the lowest first */
    int count = 0, odd = scale % 4, weight = -1 - (scale + 3) / 4;
    if (odd)
        groups[count++] = (uint16_t)(taken(&number, POWERS[odd]) * POWERS[4 - odd]);
    while (number != 0)
        groups[count++] = taken(&number, 10000);
    weight += count;
    /* Only of a whole number can the lowest groups be zeros, which are not sent. */
    int first = 0;
    while (first < count && groups[first] == 0)
        first++;
    int sent = count - first;
    uint8_t *to = more(row, 12 + 2 * sent);
    if (to == NULL)
        return 0;
    big32(to, (uint32_t)(8 + 2 * sent));
    big16(to + 4, (uint16_t)sent);
    big16(to + 6, (uint16_t)(sent ? weight : 0));
    big16(to + 8, is_negative ? NEGATIVE : 0);
    big16(to + 10, (uint16_t)scale);
    for (int place = 0; place < sent; place++)
        big16(to + 12 + 2 * place, groups[count - 1 - place]);
    return 1;
}

static int put_bytes(row_bytes *row, const uint8_t *from, int64_t size)
{
    uint8_t *to = more(row, 4 + size);
    if (to == NULL)
        return 0;
    big32(to, (uint32_t)size);
    if (size)
        memcpy(to + 4, from, (size_t)size);
    return 1;
}

static int put32(row_bytes *row, uint32_t value)
{
    uint8_t sent[4];
    big32(sent, value);
    return put_bytes(row, sent, sizeof sent);
}

static int put64(row_bytes *row, uint64_t value)
{
    uint8_t sent[8];
    big64(sent, value);
    return put_bytes(row, sent, sizeof sent);
}

/* A value that PostgreSQL has not: of a length that no other has, so that it equals nothing. */
static int put_foreign(row_bytes *row, int64_t value) { return put_bytes(row, (uint8_t *)&value, 7); }

static int put_date(row_bytes *row, int32_t days)
{
    if (days == INT32_MAX || days == -INT32_MAX)
        return put32(row, (uint32_t)(days < 0 ? INT32_MIN : INT32_MAX));
    int64_t since = (int64_t)days - DAYS_TO_2000;
    return since > INT32_MIN ? put32(row, (uint32_t)(int32_t)since) : put_foreign(row, days);
}

static int put_timestamp(row_bytes *row, int64_t micros)
{
    if (micros == INT64_MAX || micros == -INT64_MAX)
        return put64(row, (uint64_t)(micros < 0 ? INT64_MIN : INT64_MAX));
    if (micros <= INT64_MIN + MICROS_TO_2000)
        return put_foreign(row, micros);
    return put64(row, (uint64_t)(micros - MICROS_TO_2000));
}

static int put_float8(row_bytes *row, const uint8_t *from)
{
    double value;
    memcpy(&value, from, sizeof value);
    uint64_t bits = 0x7FF8000000000000; /* one NaN for all */
    if (!isnan(value))
        memcpy(&bits, &value, sizeof bits);
    return put64(row, bits);
}

static int put_float4(row_bytes *row, const uint8_t *from)
{
    float value;
    memcpy(&value, from, sizeof value);
    uint32_t bits = 0x7FC00000;
    if (!isnan(value))
        memcpy(&bits, &value, sizeof bits);
    return put32(row, bits);
}

static int put_value(row_bytes *row, const sent_column *column, int64_t place)
{
    const uint8_t *data = column->data;
    switch (column->kind) {
    case SENT_INT64:
        return put64(row, ((const uint64_t *)data)[place]);
    case SENT_FLOAT4:
        return put_float4(row, data + 4 * place);
    case SENT_FLOAT8:
        return put_float8(row, data + 8 * place);
    case SENT_BOOL: {
        uint8_t is_true = data[place] != 0;
        return put_bytes(row, &is_true, 1);
    }
    case SENT_DATE:
        return put_date(row, ((const int32_t *)data)[place]);
    case SENT_TIMESTAMP:
        return put_timestamp(row, ((const int64_t *)data)[place]);
    case SENT_NUMERIC:
        return put_numeric(row, data + 16 * place, column->scale);
    default:
        return put_bytes(row, data + column->ends[place],
                         (int64_t)column->ends[place + 1] - column->ends[place]);
    }
}

int sent_hashes(const sent_column *columns, int32_t count, int64_t rows, uint64_t *hashes)
{
    row_bytes row = {NULL, 0, 0};
    int is_whole = 1;
    for (int64_t number = 0; number < rows && is_whole; number++) {
        row.size = 0;
        uint8_t *to = more(&row, 4);
        is_whole = to != NULL;
        if (is_whole)
            big32(to, (uint32_t)count);
        for (int32_t n = 0; n < count && is_whole; n++) {
            const sent_column *column = &columns[n];
            int64_t place = column->offset + number;
            uint8_t *type = more(&row, 4);
            if (type == NULL) {
                is_whole = 0;
                break;
            }
            big32(type, column->oid);
            if (column->is_there == NULL || column->is_there[place / 8] >> place % 8 & 1) {
                is_whole = put_value(&row, column, place);
            } else {
                uint8_t *null = more(&row, 4);
                is_whole = null != NULL;
                if (is_whole)
                    big32(null, UINT32_MAX);
            }
        }
        if (is_whole)
            hashes[number] = lookup3(row.bytes, (uint32_t)row.size);
    }
    free(row.bytes);
    return is_whole;
}

void sent_sums(const int64_t *buckets, const uint64_t *hashes, int64_t rows, int64_t most,
               int64_t *counts, uint64_t *totals)
{
    for (int64_t number = 0; number < rows; number++) {
        int64_t bucket = buckets[number] + most;
        counts[bucket]++;
        totals[bucket] += hashes[number];
    }
}
