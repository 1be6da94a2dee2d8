/* Records of some partitions by column, in buckets by a hash of their key; called
 * by changelog/native/compiled/intake.py.
 *
 * The verifier's own reading: it shares nothing with reader.c and fold.c but librdkafka, since a
 * record that both skipped would be missed by both. Columns are in Arrow's layout, and are handed
 * over whole: a bucket that was taken begins anew.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "clock.h"
#include "kafka.h"

enum { PLACE_BYTES = 20, MOST_TEXT = 40 };
enum { BATCH = 512, BATCH_MS = 20 };
enum { PARTITION_EOF = -191, TRANSPORT = -195, ALL_BROKERS_DOWN = -187 };

/* ---- columns ---- */

struct columns {
    uint8_t prefix[8];
    uint32_t prefix_size;
    uint32_t count;
    int64_t held;
    column_set *buckets;
    int64_t *rooms, *key_rooms, *value_rooms;
};

columns *columns_new(const uint8_t *prefix, uint32_t prefix_size, uint32_t buckets)
{
    columns *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->prefix_size = prefix_size;
    memcpy(c->prefix, prefix, prefix_size);
    c->count = buckets;
    c->buckets = calloc(buckets, sizeof *c->buckets);
    c->rooms = calloc(buckets, sizeof *c->rooms);
    c->key_rooms = calloc(buckets, sizeof *c->key_rooms);
    c->value_rooms = calloc(buckets, sizeof *c->value_rooms);
    if (c->buckets == NULL || c->rooms == NULL || c->key_rooms == NULL || c->value_rooms == NULL)
        return columns_free(c), NULL;
    return c;
}

void column_set_free(column_set *of)
{
    free(of->partitions);
    free(of->offsets);
    free(of->epochs);
    free(of->lsns);
    free(of->sequences);
    free(of->faults);
    free(of->is_there);
    free(of->key_ends);
    free(of->value_ends);
    free(of->keys);
    free(of->values);
    memset(of, 0, sizeof *of);
}

void columns_free(columns *c)
{
    if (c == NULL)
        return;
    for (uint32_t n = 0; c->buckets != NULL && n < c->count; n++)
        column_set_free(&c->buckets[n]);
    free(c->buckets);
    free(c->rooms);
    free(c->key_rooms);
    free(c->value_rooms);
    free(c);
}

int64_t columns_held(const columns *c)
{
    return c->held;
}

static int64_t larger(int64_t room, int64_t wanted)
{
#ifdef GROW_EXACTLY
    (void)room;
    return wanted;
#else
    int64_t found = room > 0 ? room : 256;
    while (found < wanted)
        found *= 2;
    return found;
#endif
}

static int resized(void *array, size_t bytes)
{
    void *before;
    memcpy(&before, array, sizeof before);
    void *after = realloc(before, bytes);
    if (after == NULL)
        return 0;
    memcpy(array, &after, sizeof after);
    return 1;
}

/* Make room for one row more. */
static int one_more(column_set *s, int64_t *room)
{
    if (s->rows < *room)
        return 1;
    int64_t next = larger(*room, s->rows + 1);
    size_t n = (size_t)next, bits = (n + 7) / 8, bits_then = (size_t)(*room + 7) / 8;
    if (!resized(&s->partitions, n * sizeof *s->partitions) ||
        !resized(&s->offsets, n * sizeof *s->offsets) ||
        !resized(&s->epochs, n * sizeof *s->epochs) || !resized(&s->lsns, n * sizeof *s->lsns) ||
        !resized(&s->sequences, n * sizeof *s->sequences) || !resized(&s->faults, n) ||
        !resized(&s->key_ends, (n + 1) * sizeof *s->key_ends) ||
        !resized(&s->value_ends, (n + 1) * sizeof *s->value_ends) || !resized(&s->is_there, bits))
        return 0;
    memset(s->is_there + bits_then, 0, bits - bits_then);
    if (*room == 0)
        s->key_ends[0] = s->value_ends[0] = 0;
    *room = next;
    return 1;
}

/* Put bytes behind the others. */
static int put(uint8_t **to, int64_t *size, int64_t *room, const uint8_t *bytes, size_t count)
{
    if (count > (size_t)(INT32_MAX - *size))
        return 0;
    int64_t wanted = *size + (int64_t)count;
    if (wanted > *room) {
        int64_t next = larger(*room, wanted);
        if (!resized(to, (size_t)next))
            return 0;
        *room = next;
    }
    if (count > 0)
        memcpy(*to + *size, bytes, count);
    *size = wanted;
    return 1;
}

static uint64_t big_endian(const uint8_t *bytes, int count)
{
    uint64_t found = 0;
    for (int n = 0; n < count; n++)
        found = found << 8 | bytes[n];
    return found;
}

static uint32_t bucket_of(const columns *c, const uint8_t *key, size_t size)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t n = 0; n < size; n++)
        hash = (hash ^ key[n]) * 0x100000001B3u;
    hash = (hash ^ hash >> 32) * 0x9E3779B97F4A7C15u;
    return (uint32_t)((hash >> 32) * c->count >> 32);
}

static int is_place(const header *found)
{
    return found->bytes != NULL && found->size == PLACE_BYTES &&
           strcmp(found->name, "position") == 0;
}

int columns_add(columns *c, int32_t partition, int64_t offset, const uint8_t *key, size_t key_size,
                const uint8_t *value, size_t value_size, const header *headers, size_t count)
{
    char text[MOST_TEXT];
    const uint8_t *place = NULL;
    uint8_t fault = INTAKE_SOUND;
    for (size_t n = 0; n < count && place == NULL; n++)
        place = is_place(&headers[n]) ? headers[n].bytes : NULL;
    if (key == NULL)
        fault = INTAKE_NO_KEY;
    else if (key_size < c->prefix_size || memcmp(key, c->prefix, c->prefix_size) != 0)
        fault = INTAKE_OTHER_KEY;
    else if (place == NULL)
        fault = INTAKE_NO_PLACE;
    if (key == NULL) { /* a record of its own */
        key_size = (size_t)snprintf(text, sizeof text, "%d:%lld", partition, (long long)offset);
        key = (const uint8_t *)text;
    }
    uint32_t number = bucket_of(c, key, key_size);
    column_set *s = &c->buckets[number];
    if (!one_more(s, &c->rooms[number]) ||
        !put(&s->keys, &s->key_bytes, &c->key_rooms[number], key, key_size) ||
        !put(&s->values, &s->value_bytes, &c->value_rooms[number], value,
             value == NULL ? 0 : value_size))
        return 0;
    int64_t row = s->rows++;
    int is_sound = fault == INTAKE_SOUND;
    s->partitions[row] = partition;
    s->offsets[row] = offset;
    s->epochs[row] = is_sound ? (uint32_t)big_endian(place, 4) : UINT32_MAX;
    s->lsns[row] = is_sound ? big_endian(place + 4, 8) : UINT64_MAX;
    s->sequences[row] = is_sound ? big_endian(place + 12, 8) : UINT64_MAX;
    s->faults[row] = fault;
    s->faulty += !is_sound;
    s->key_ends[row + 1] = (int32_t)s->key_bytes;
    s->value_ends[row + 1] = (int32_t)s->value_bytes;
    if (value != NULL)
        s->is_there[row / 8] |= (uint8_t)(1 << row % 8);
    c->held += (int64_t)(key_size + (value == NULL ? 0 : value_size)) + INTAKE_ROW_BYTES;
    return 1;
}

void columns_take(columns *c, uint32_t bucket, column_set *to)
{
    *to = c->buckets[bucket];
    c->held -= to->key_bytes + to->value_bytes + to->rows * INTAKE_ROW_BYTES;
    memset(&c->buckets[bucket], 0, sizeof *to);
    c->rooms[bucket] = c->key_rooms[bucket] = c->value_rooms[bucket] = 0;
}

/* ---- the consumer ---- */

struct intake {
    rd_kafka *client;
    rd_kafka_queue *queue;
    columns *into;
    intake_slice *slices;
    uint32_t count;
    char *topic;
    rd_kafka_message *messages[BATCH];
    header *headers;
    size_t header_room;
};

intake *intake_open(const char *const *names, const char *const *values, size_t count, char *said,
                    size_t said_size)
{
    intake *r = calloc(1, sizeof *r);
    rd_kafka_conf *conf = kafka.conf_new();
    if (r == NULL || conf == NULL) {
        snprintf(said, said_size, "no memory is left");
        return free(r), NULL;
    }
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

void intake_close(intake *r)
{
    if (r == NULL)
        return;
    kafka.queue_destroy(r->queue);
    kafka.consumer_close(r->client);
    kafka.destroy(r->client);
    free(r->headers);
    free(r->slices);
    free(r->topic);
    free(r);
}

int intake_rest(intake *r)
{
    /* A partition that is paused stays so when it is assigned again. */
    rd_kafka_partition_list *all = kafka.topic_partition_list_new((int)r->count);
    for (uint32_t n = 0; n < r->count; n++)
        kafka.topic_partition_list_add(all, r->topic, r->slices[n].partition);
    kafka.resume_partitions(r->client, all);
    kafka.topic_partition_list_destroy(all);
    r->count = 0;
    r->into = NULL;
    return kafka.assign(r->client, NULL);
}

/* Ask who leads a topic: a client that has others waits a second before it asks by itself. */
static int ask_for_leaders(intake *r, const char *topic, int timeout_ms)
{
    const void *metadata = NULL;
    rd_kafka_topic *about = kafka.topic_new(r->client, topic, NULL);
    if (about == NULL)
        return RD_KAFKA_NO_MEMORY;
    int error = kafka.metadata(r->client, 0, about, &metadata, timeout_ms);
    if (metadata != NULL)
        kafka.metadata_destroy(metadata);
    kafka.topic_destroy(about);
    return error;
}

int intake_assign(intake *r, columns *into, const char *topic, const intake_slice *slices,
                  uint32_t count, int timeout_ms)
{
    int error = ask_for_leaders(r, topic, timeout_ms);
    if (error != 0)
        return error;
    free(r->slices);
    free(r->topic);
    r->into = into;
    r->count = 0;
    r->slices = calloc(count, sizeof *slices);
    r->topic = strdup(topic);
    if (r->slices == NULL || r->topic == NULL)
        return RD_KAFKA_NO_MEMORY;
    memcpy(r->slices, slices, count * sizeof *slices);
    r->count = count;
    rd_kafka_partition_list *wanted = kafka.topic_partition_list_new((int)count);
    for (uint32_t n = 0; n < count; n++)
        kafka.topic_partition_list_add(wanted, topic, slices[n].partition)->offset =
            slices[n].next;
    error = kafka.assign(r->client, wanted);
    kafka.topic_partition_list_destroy(wanted);
    return error;
}

static intake_slice *slice_of(intake *r, int32_t partition)
{
    for (uint32_t n = 0; n < r->count; n++)
        if (r->slices[n].partition == partition)
            return &r->slices[n];
    return NULL;
}

/* Find the headers of a message, as far as the one that says its place. */
static int find_headers(intake *r, const rd_kafka_message *message, size_t *count)
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
        if (*count == r->header_room) {
            size_t room = *count + 8;
            if (!resized(&r->headers, room * sizeof *r->headers))
                return 0;
            r->header_room = room;
        }
        r->headers[(*count)++] = found;
        if (is_place(&found))
            return 1;
    }
}

static void blame(intake_news *news, int outcome, int32_t partition, int64_t offset)
{
    news->outcome = outcome;
    news->partition = partition;
    news->offset = offset;
}

/* Take one message into account; what lies behind an end is not wanted. */
static void take(intake *r, const rd_kafka_message *message, intake_news *news)
{
    intake_slice *slice = slice_of(r, message->partition);
    size_t count;
    if (message->err == TRANSPORT || message->err == ALL_BROKERS_DOWN)
        return; /* the client connects again */
    if (message->err != 0 && message->err != PARTITION_EOF) {
        blame(news, INTAKE_REFUSED, message->partition, message->offset);
        news->error = message->err;
        const char *said = message->payload;
        snprintf(news->said, sizeof news->said, "%s",
                 said == NULL ? kafka.err2str(message->err) : said);
        return;
    }
    if (slice == NULL || !slice->is_open || strcmp(kafka.topic_name(message->rkt), r->topic) != 0)
        return; /* it may be of what was read before */
    if (message->err == PARTITION_EOF) {
        if (message->offset < slice->end)
            blame(news, INTAKE_SHORT, message->partition, message->offset);
        else
            slice->is_open = 0;
        return;
    }
    if (message->offset >= slice->end) {
        slice->is_open = 0;
        return;
    }
    if (message->offset < slice->next) {
        blame(news, INTAKE_DISORDER, message->partition, message->offset);
        return;
    }
    if (!find_headers(r, message, &count) ||
        !columns_add(r->into, message->partition, message->offset, message->key, message->key_len,
                     message->payload, message->len, r->headers, count)) {
        blame(news, INTAKE_NO_MEMORY, message->partition, message->offset);
        return;
    }
    news->added++;
    slice->next = message->offset + 1;
    slice->is_open = slice->next < slice->end;
}

static int32_t count_open(const intake *r)
{
    int32_t found = 0;
    for (uint32_t n = 0; n < r->count; n++)
        found += r->slices[n].is_open;
    return found;
}

/* Fetch no more of what is read. */
static void pause_closed(intake *r)
{
    rd_kafka_partition_list *closed = kafka.topic_partition_list_new((int)r->count);
    for (uint32_t n = 0; n < r->count; n++)
        if (!r->slices[n].is_open)
            kafka.topic_partition_list_add(closed, r->topic, r->slices[n].partition);
    kafka.pause_partitions(r->client, closed);
    kafka.topic_partition_list_destroy(closed);
}

void intake_poll(intake *r, int timeout_ms, int64_t most_bytes, intake_news *news)
{
    int64_t deadline = now_ms() + timeout_ms;
    memset(news, 0, sizeof *news);
    news->open = count_open(r);
    while (news->open > 0 && news->outcome == INTAKE_OK && r->into->held < most_bytes &&
           now_ms() < deadline) {
        /* The client waits until a batch is full: so for the first message alone. */
        ptrdiff_t count = kafka.consume_batch_queue(r->queue, BATCH_MS, r->messages, 1);
        if (count < 0)
            break;
        if (count > 0) {
            ptrdiff_t more = kafka.consume_batch_queue(r->queue, 0, r->messages + 1, BATCH - 1);
            count += more > 0 ? more : 0;
        }
        for (ptrdiff_t n = 0; n < count; n++) {
            if (news->outcome == INTAKE_OK)
                take(r, r->messages[n], news);
            kafka.message_destroy(r->messages[n]);
        }
        int32_t open = count_open(r);
        if (open < news->open && open > 0)
            pause_closed(r);
        news->open = open;
    }
}
