/* Texts and records: memory that is kept from one batch to the next. */
#include <string.h>

#include "api.h"
#include "grow.h"
#include "texts.h"

int texts_add(texts *to, const uint8_t *bytes, int64_t size)
{
    int64_t start = start_of(to, to->count);
    if (!GROWN(to->bytes, to->room, start + size) || !GROWN(to->ends, to->places, to->count + 1))
        return 0;
    if (size > 0)
        memcpy(to->bytes + start, bytes, (size_t)size);
    to->ends[to->count++] = start + size;
    return 1;
}

int texts_add_range(texts *to, const texts *from, int64_t first, int64_t end)
{
    if (first >= end)
        return 1;
    int64_t start = start_of(from, first), size = start_of(from, end) - start;
    int64_t place = start_of(to, to->count);
    if (!GROWN(to->bytes, to->room, place + size) ||
        !GROWN(to->ends, to->places, to->count + end - first))
        return 0;
    if (size > 0)
        memcpy(to->bytes + place, from->bytes + start, (size_t)size);
    for (int64_t n = first; n < end; n++)
        to->ends[to->count++] = from->ends[n] - start + place;
    return 1;
}

/* More than this is given back: one row may be a thousand times as large as the others. */
static const int64_t KEPT = 32 << 20;

static void give_back(uint8_t **bytes, int64_t *room)
{
    if (*room > KEPT) {
        free(*bytes);
        *bytes = NULL;
        *room = 0;
    }
}

void texts_clear(texts *of)
{
    of->count = 0;
    give_back(&of->bytes, &of->room);
}

void texts_free(texts *of)
{
    free(of->bytes);
    free(of->ends);
    memset(of, 0, sizeof *of);
}

int records_add(records *to, const uint8_t *key, int64_t key_size, const uint8_t *value,
                int64_t value_size, uint64_t lsn, uint64_t sequence, int64_t ts_us, uint8_t op)
{
    int64_t keys = key != NULL ? key_size : 0, values = value != NULL ? value_size : 0;
    if (!GROWN(to->bytes, to->room, to->size + keys + values) ||
        !GROWN(to->list, to->places, to->count + 1))
        return 0;
    record *added = &to->list[to->count++];
    *added = (record){.key = to->size,
                      .value = to->size + keys,
                      .end = to->size + keys + values,
                      .lsn = lsn,
                      .sequence = sequence,
                      .ts_us = ts_us,
                      .op = op,
                      .has_key = key != NULL,
                      .has_value = value != NULL};
    if (keys > 0)
        memcpy(to->bytes + added->key, key, (size_t)keys);
    if (values > 0)
        memcpy(to->bytes + added->value, value, (size_t)values);
    to->size = added->end;
    return 1;
}

void records_clear(records *of)
{
    of->size = of->count = 0;
    memset(of->rows, 0, sizeof of->rows);
    memset(of->sizes, 0, sizeof of->sizes);
    give_back(&of->bytes, &of->room);
}

int64_t records_leave_out(records *of, int64_t first, const written *in, int32_t partitions)
{
    static const char OPS[] = "cudr"; /* in the order of the counts */
    int64_t left_out = 0;
    memset(of->rows, 0, sizeof of->rows);
    memset(of->sizes, 0, sizeof of->sizes);
    for (int64_t place = first; place < of->count; place++) {
        record *at = &of->list[place];
        const written *last =
            &in[partition_of(of->bytes + at->key, (size_t)(at->value - at->key), partitions)];
        if (at->lsn < last->lsn || (at->lsn == last->lsn && at->sequence <= last->sequence)) {
            at->left_out = 1;
            left_out++;
            continue;
        }
        ptrdiff_t what = strchr(OPS, at->op) - OPS;
        of->rows[what]++;
        of->sizes[what] += at->end - at->key;
    }
    return left_out;
}

void records_free(records *of)
{
    free(of->bytes);
    free(of->list);
    free(of->fields);
    free(of->plain);
    free(of->item);
    memset(of, 0, sizeof *of);
}

const char *api_stamp(void)
{
    return API_STAMP;
}
