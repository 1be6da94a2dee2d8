/* Records of some partitions back to back, for bulk loads; called by
 * changelog/native/compiled/loads.py.
 *
 * What librdkafka gives is copied, and let go at once: a batch is then a few arrays that are used
 * again and again, and what copyrows.c reads of it lies in one piece.
 */
#include <stdio.h>
#include <string.h>

#include "api.h"
#include "clock.h"
#include "grow.h"
#include "kafka.h"

enum { FETCHED = 64, FETCH_MS = 20, FRAME_BYTES = 5, LARGE = 64 << 10 };
enum { PARTITION_EOF = -191 };

/* ---- records ---- */

void batch_clear(batch *of)
{
    of->count = 0;
}

void batch_free(batch *of)
{
    free(of->slots);
    free(of->partitions);
    free(of->offsets);
    free(of->timestamps);
    free(of->is_there);
    free(of->key_ends);
    free(of->value_ends);
    free(of->header_ends);
    free(of->keys);
    free(of->values);
    free(of->headers);
    memset(of, 0, sizeof *of);
}

int64_t batch_size(const batch *of)
{
    int64_t n = of->count;
    return n == 0 ? 0 : of->key_ends[n] + of->value_ends[n] + of->header_ends[n];
}

/* Make room for one record more. */
static int one_more(batch *of)
{
    int64_t places, next = of->count + 1;
    if (next <= of->room)
        return 1;
#ifndef GROW_EXACTLY
    next = of->room > 0 ? 2 * of->room : 63; /* with the end more a power of two */
#endif
#define MORE(array, wanted) (places = 0, GROWN(of->array, places, (wanted)))
    if (!MORE(key_ends, next + 1) || !MORE(value_ends, next + 1) || !MORE(header_ends, next + 1) ||
        !MORE(slots, next) || !MORE(partitions, next) || !MORE(offsets, next) ||
        !MORE(timestamps, next) || !MORE(is_there, next))
        return 0;
#undef MORE
    if (of->room == 0)
        of->key_ends[0] = of->value_ends[0] = of->header_ends[0] = 0;
    of->room = next;
    return 1;
}

static int put(uint8_t **to, int64_t *room, int64_t at, const void *bytes, size_t size)
{
    if (size > (size_t)(INT64_MAX / 4) || !GROWN(*to, *room, at + (int64_t)size))
        return 0;
    if (size > 0)
        memcpy(*to + at, bytes, size);
    return 1;
}

/* Write headers behind those of the records before; gives where they end, or -1. */
static int64_t put_headers(batch *to, int64_t at, const header *headers, size_t count)
{
    for (size_t n = 0; n < count; n++) {
        const header *each = &headers[n];
        int64_t sizes[2] = {(int64_t)strlen(each->name),
                            each->bytes == NULL ? -1 : (int64_t)each->size};
        size_t content = each->bytes == NULL ? 0 : each->size;
        if (!put(&to->headers, &to->header_room, at, sizes, sizeof sizes) ||
            !put(&to->headers, &to->header_room, at + (int64_t)sizeof sizes, each->name,
                 (size_t)sizes[0]) ||
            !put(&to->headers, &to->header_room, at + (int64_t)sizeof sizes + sizes[0],
                 each->bytes, content))
            return -1;
        at += (int64_t)sizeof sizes + sizes[0] + (int64_t)content;
    }
    return at;
}

int batch_add(batch *to, int32_t slot, int32_t partition, int64_t offset, int64_t timestamp,
              const uint8_t *key, size_t key_size, const uint8_t *value, size_t value_size,
              const header *headers, size_t count)
{
    if (!one_more(to))
        return 0;
    int64_t n = to->count;
    int64_t header_end = put_headers(to, to->header_ends[n], headers, count);
    key_size = key == NULL ? 0 : key_size;
    value_size = value == NULL ? 0 : value_size;
    if (header_end < 0 || !put(&to->keys, &to->key_room, to->key_ends[n], key, key_size) ||
        !put(&to->values, &to->value_room, to->value_ends[n], value, value_size))
        return 0;
    to->slots[n] = slot;
    to->partitions[n] = partition;
    to->offsets[n] = offset;
    to->timestamps[n] = timestamp;
    to->is_there[n] = (uint8_t)((key == NULL ? 0 : BATCH_KEY) | (value == NULL ? 0 : BATCH_VALUE));
    to->key_ends[n + 1] = to->key_ends[n] + (int64_t)key_size;
    to->value_ends[n + 1] = to->value_ends[n] + (int64_t)value_size;
    to->header_ends[n + 1] = header_end;
    to->count++;
    return 1;
}

/* ---- groups ---- */

static int is_alike(const uint8_t *bytes, const int64_t *ends, int64_t one, int64_t other)
{
    int64_t size = ends[one + 1] - ends[one], other_size = ends[other + 1] - ends[other];
    size = size < FRAME_BYTES ? size : FRAME_BYTES;
    other_size = other_size < FRAME_BYTES ? other_size : FRAME_BYTES;
    return size == other_size &&
           (size == 0 || memcmp(bytes + ends[one], bytes + ends[other], (size_t)size) == 0);
}

/* Find the group of a record, or begin one; the last of all takes what finds none. */
static int64_t group_of(const batch *of, int64_t n, int by_value, int by_key, batch_group *groups,
                        int64_t *count, int64_t most)
{
    for (int64_t g = 0; g < *count; g++)
        if (groups[g].is_other ||
            ((!by_value || is_alike(of->values, of->value_ends, n, groups[g].shown)) &&
             (!by_key || is_alike(of->keys, of->key_ends, n, groups[g].shown))))
            return g;
    groups[*count] = (batch_group){.shown = n, .is_other = *count == most - 1};
    return (*count)++;
}

int64_t batch_sort(const batch *of, int64_t first, int64_t end, int by_value, int by_key,
                   int64_t *order, int64_t *gone, batch_group *groups, int64_t most)
{
    int64_t count = 0, rows = end - first, next = 0;
    int32_t *group = malloc((size_t)(rows > 0 ? rows : 1) * sizeof *group);
    if (group == NULL)
        return NO_MEMORY;
    *gone = 0;
    for (int64_t row = 0; row < rows; row++) {
        group[row] = -1;
        if (!(of->is_there[first + row] & BATCH_VALUE)) {
            order[(*gone)++] = row;
            continue;
        }
        int64_t g = group_of(of, first + row, by_value, by_key, groups, &count, most);
        groups[g].count++;
        group[row] = (int32_t)g;
    }
    next = *gone;
    int64_t *places = malloc((size_t)(count > 0 ? count : 1) * sizeof *places);
    if (places == NULL)
        return free(group), NO_MEMORY;
    for (int64_t g = 0; g < count; g++) {
        places[g] = next;
        next += groups[g].count;
    }
    for (int64_t row = 0; row < rows; row++)
        if (group[row] >= 0)
            order[places[group[row]]++] = row;
    free(places);
    free(group);
    return count;
}

/* ---- the consumer ---- */

struct batch_reader {
    rd_kafka *client;
    rd_kafka_queue *queue;
    batch_slice *slices;
    int32_t count;
    int32_t last; /* slice of the last record */
    rd_kafka_message *messages[FETCHED];
    size_t step; /* messages that are asked for at a time */
    header *headers;
    int64_t header_room;
};

batch_reader *batch_reader_open(const char *const *names, const char *const *values, size_t count,
                                char *said, size_t said_size)
{
    batch_reader *r = calloc(1, sizeof *r);
    rd_kafka_conf *conf = kafka.conf_new();
    if (r == NULL || conf == NULL) {
        snprintf(said, said_size, "no memory is left");
        return free(r), NULL;
    }
    r->step = 1;
    for (size_t n = 0; n < count; n++) {
        if (kafka.conf_set(conf, names[n], values[n], said, said_size) != RD_KAFKA_CONF_OK) {
            kafka.conf_destroy(conf);
            return free(r), NULL;
        }
    }
    r->client = kafka.new(RD_KAFKA_CONSUMER, conf, said, said_size);
    if (r->client == NULL) {
        kafka.conf_destroy(conf);
        return free(r), NULL;
    }
    kafka.poll_set_consumer(r->client);
    r->queue = kafka.queue_get_consumer(r->client);
    return r;
}

static void forget_slices(batch_reader *r)
{
    for (int32_t n = 0; n < r->count; n++)
        free((void *)r->slices[n].topic);
    free(r->slices);
    r->slices = NULL;
    r->count = r->last = 0;
}

void batch_reader_close(batch_reader *r)
{
    if (r == NULL)
        return;
    kafka.queue_destroy(r->queue);
    kafka.consumer_close(r->client);
    kafka.destroy(r->client);
    forget_slices(r);
    free(r->headers);
    free(r);
}

const batch_slice *batch_reader_slices(const batch_reader *r)
{
    return r->slices;
}

int batch_reader_assign(batch_reader *r, const batch_slice *slices, int32_t count)
{
    forget_slices(r);
    r->slices = calloc((size_t)count + 1, sizeof *slices);
    if (r->slices == NULL)
        return RD_KAFKA_NO_MEMORY;
    rd_kafka_partition_list *wanted = kafka.topic_partition_list_new(count);
    for (int32_t n = 0; n < count; n++) {
        batch_slice *to = &r->slices[r->count++];
        *to = slices[n];
        to->topic = strdup(slices[n].topic);
        to->is_open = to->end < 0 || to->next < to->end;
        if (to->topic == NULL)
            return kafka.topic_partition_list_destroy(wanted), RD_KAFKA_NO_MEMORY;
        if (to->is_open)
            kafka.topic_partition_list_add(wanted, to->topic, to->partition)->offset = to->next;
    }
    int error = kafka.assign(r->client, wanted);
    kafka.topic_partition_list_destroy(wanted);
    return error;
}

static int is_of(const batch_slice *slice, const char *topic, int32_t partition)
{
    return slice->partition == partition && strcmp(slice->topic, topic) == 0;
}

/* Most records are of the slice of the one before. */
static batch_slice *slice_of(batch_reader *r, const char *topic, int32_t partition)
{
    if (r->last < r->count && is_of(&r->slices[r->last], topic, partition))
        return &r->slices[r->last];
    for (int32_t n = 0; n < r->count; n++)
        if (is_of(&r->slices[n], topic, partition)) {
            r->last = n;
            return &r->slices[n];
        }
    return NULL;
}

static int find_headers(batch_reader *r, const rd_kafka_message *message, size_t *count)
{
    rd_kafka_headers *all;
    *count = 0;
    if (kafka.message_headers(message, &all) != 0)
        return 1;
    for (;;) {
        header found;
        const void *bytes;
        if (kafka.header_get_all(all, *count, &found.name, &bytes, &found.size) != 0)
            return 1;
        found.bytes = bytes;
        if (!GROWN(r->headers, r->header_room, (int64_t)*count + 1))
            return 0;
        r->headers[(*count)++] = found;
    }
}

/* Note what a message that is no record says. */
static void hear(batch_reader *r, const rd_kafka_message *message, batch_news *news)
{
    const char *topic = message->rkt == NULL ? "" : kafka.topic_name(message->rkt);
    if (message->err == PARTITION_EOF) {
        batch_slice *slice = slice_of(r, topic, message->partition);
        if (slice != NULL && slice->end >= 0 && message->offset >= slice->end)
            slice->is_open = 0;
        return;
    }
    if (news->error != 0)
        return;
    news->error = message->err;
    news->partition = message->partition;
    snprintf(news->topic, sizeof news->topic, "%s", topic);
    const char *said = message->payload;
    snprintf(news->said, sizeof news->said, "%s", said == NULL ? kafka.err2str(message->err) : said);
}

/* Take a record that is wanted: from its slice's place on, once, in the order of offsets. */
static void take(batch_reader *r, const rd_kafka_message *message, batch *into,
                 const batch_limits *until, batch_news *news)
{
    batch_slice *slice = slice_of(r, kafka.topic_name(message->rkt), message->partition);
    size_t count = 0;
    int kind;
    if (slice == NULL || !slice->is_open || message->offset < slice->next)
        return;
    int64_t timestamp = kafka.message_timestamp(message, &kind);
    if (slice->end < 0 && until->before_ms >= 0 && timestamp >= until->before_ms)
        slice->end = message->offset;
    if (slice->end >= 0 && message->offset >= slice->end) {
        slice->is_open = 0;
        return;
    }
    news->has_memory = (!until->with_headers || find_headers(r, message, &count)) &&
                       batch_add(into, (int32_t)(slice - r->slices), message->partition,
                                 message->offset, timestamp, message->key, message->key_len,
                                 message->payload, message->len, r->headers, count);
    if (!news->has_memory)
        return;
    news->added++;
    slice->next = message->offset + 1;
    slice->is_open = slice->end < 0 || slice->next < slice->end;
}

static int32_t count_open(const batch_reader *r)
{
    int32_t found = 0;
    for (int32_t n = 0; n < r->count; n++)
        found += r->slices[n].is_open;
    return found;
}

/* Fetch no more of what is read. */
static void pause_closed(batch_reader *r)
{
    rd_kafka_partition_list *closed = kafka.topic_partition_list_new(r->count);
    for (int32_t n = 0; n < r->count; n++)
        if (!r->slices[n].is_open)
            kafka.topic_partition_list_add(closed, r->slices[n].topic, r->slices[n].partition);
    kafka.pause_partitions(r->client, closed);
    kafka.topic_partition_list_destroy(closed);
}

static size_t wanted(const batch_reader *r, const batch *into, const batch_limits *until)
{
    size_t left = (size_t)(until->records - into->count);
    return left < r->step ? left : r->step;
}

/* Ask for few at a time, and for one alone where they are large: what is given has to be taken,
 * and what was unpacked of a small batch may be gigabytes. */
static void pace(batch_reader *r, ptrdiff_t count)
{
    size_t came = 0;
    for (ptrdiff_t n = 0; n < count; n++)
        came += r->messages[n]->len + r->messages[n]->key_len;
    size_t twice = 2 * r->step;
    r->step = came > LARGE * (size_t)count ? 1 : twice < FETCHED ? twice : FETCHED;
}

void batch_reader_poll(batch_reader *r, batch *into, const batch_limits *until, batch_news *news)
{
    int64_t deadline = now_ms() + until->timeout_ms;
    memset(news, 0, sizeof *news);
    news->has_memory = 1;
    news->open = count_open(r);
    while (news->open > 0 && news->has_memory && news->error == 0 &&
           into->count < until->records && batch_size(into) < until->bytes &&
           now_ms() < deadline) {
        ptrdiff_t count =
            kafka.consume_batch_queue(r->queue, FETCH_MS, r->messages, wanted(r, into, until));
        if (count < 0)
            break;
        pace(r, count);
        for (ptrdiff_t n = 0; n < count; n++) {
            if (r->messages[n]->err != 0)
                hear(r, r->messages[n], news);
            else if (news->has_memory)
                take(r, r->messages[n], into, until, news);
            kafka.message_destroy(r->messages[n]);
        }
        int32_t open = count_open(r);
        if (open < news->open && open > 0)
            pause_closed(r);
        news->open = open;
    }
}
