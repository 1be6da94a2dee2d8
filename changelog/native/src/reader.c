/* A range of a partition into a fold: librdkafka's consumer, without an object for each record. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "clock.h"
#include "kafka.h"

enum { MOST_MESSAGES = FOLD_MOST_RECORDS };
enum { BATCH_MS = 20 }; /* a batch that stays short, as behind the last record, is waited for so long */
enum { PARTITION_EOF = -191, AUTHENTICATION = -169, SASL_AUTHENTICATION_FAILED = 58 };

struct reader {
    rd_kafka *client;
    rd_kafka_queue *queue;
    rd_kafka_message *messages[MOST_MESSAGES];
    int64_t following; /* offset */
    int error;
    char said[512];
};

static void on_error(rd_kafka *client, int error, const char *said, void *opaque)
{
    reader *r = opaque;
    (void)client;
    /* The first, unless a later one says why no broker lets us in. */
    if (r->error != 0 && error != AUTHENTICATION && error != SASL_AUTHENTICATION_FAILED)
        return;
    r->error = error;
    snprintf(r->said, sizeof r->said, "%s", said);
}

reader *reader_open(const char *const *names, const char *const *values, size_t count, char *said,
                    size_t said_size)
{
    reader *r = calloc(1, sizeof *r);
    rd_kafka_conf *conf = kafka.conf_new();
    if (r == NULL || conf == NULL) {
        snprintf(said, said_size, "no memory is left");
        return free(r), NULL;
    }
    kafka.conf_set_opaque(conf, r);
    kafka.conf_set_error_cb(conf, on_error);
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

void reader_close(reader *r)
{
    if (r == NULL)
        return;
    kafka.queue_destroy(r->queue);
    kafka.consumer_close(r->client);
    kafka.destroy(r->client);
    free(r);
}

const char *reader_said(const reader *r)
{
    return r->said;
}

const char *kafka_error_text(int error)
{
    return kafka.err2str(error);
}

int reader_assign(reader *r, const char *topic, int32_t partition, int64_t offset, int timeout_ms)
{
    if (topic == NULL)
        return kafka.assign(r->client, NULL);
    rd_kafka_topic *about = kafka.topic_new(r->client, topic, NULL);
    const void *metadata = NULL;
    if (about == NULL)
        return -1;
    /* The leader, before it is looked for. */
    int error = kafka.metadata(r->client, 0, about, &metadata, timeout_ms);
    if (metadata != NULL)
        kafka.metadata_destroy(metadata);
    kafka.topic_destroy(about);
    if (error != 0)
        return error;
    rd_kafka_partition_list *wanted = kafka.topic_partition_list_new(1);
    kafka.topic_partition_list_add(wanted, topic, partition)->offset = offset;
    r->following = offset;
    error = kafka.assign(r->client, wanted);
    kafka.topic_partition_list_destroy(wanted);
    return error;
}

/* Capture writes the position first; another header of the name counts where it does not. */
static void find_position(const rd_kafka_message *message, fold_record *record)
{
    rd_kafka_headers *headers;
    const char *name;
    const void *found;
    size_t size;
    if (kafka.message_headers(message, &headers) != 0)
        return;
    if (kafka.header_get_all(headers, 0, &name, &found, &size) == 0 &&
        strcmp(name, "position") == 0) {
        record->position = found;
        record->position_size = found == NULL ? 0 : size;
    } else if (kafka.header_get_last(headers, "position", &found, &size) == 0) {
        record->position = found;
        record->position_size = found == NULL ? 0 : size;
    }
}

/* Note what a message that is no record says. */
static void hear(reader *r, const rd_kafka_message *message, reader_news *news)
{
    if (message->err == PARTITION_EOF) {
        news->ends_at = message->offset;
        return;
    }
    on_error(r->client, message->err,
             message->payload == NULL ? kafka.err2str(message->err) : message->payload, r);
}

/* Take one batch into account. */
static void take(reader *r, fold *into, int64_t end, ptrdiff_t count, reader_news *news)
{
    fold_record records[MOST_MESSAGES];
    size_t found = 0;
    for (ptrdiff_t n = 0; n < count && !news->is_over; n++) {
        const rd_kafka_message *message = r->messages[n];
        if (message->err != 0) {
            hear(r, message, news);
        } else if (message->offset >= end) {
            news->is_over = 1;
        } else {
            fold_record *record = &records[found++];
            *record = (fold_record){
                .key = message->key,
                .key_size = message->key_len,
                .value = message->payload,
                .value_size = message->len,
                .offset = message->offset,
            };
            find_position(message, record);
            r->following = message->offset + 1;
            news->is_over = r->following >= end;
        }
    }
    news->added += (int64_t)found;
    news->outcome = fold_add(into, records, found);
}

void reader_poll(reader *r, fold *into, int64_t end, int timeout_ms, reader_news *news)
{
    int64_t deadline = now_ms() + timeout_ms;
    memset(news, 0, sizeof *news);
    news->ends_at = -1;
    r->error = 0;
    for (int is_done = 0; !is_done && now_ms() < deadline;) {
        int64_t wanted = end - r->following;
        ptrdiff_t count =
            kafka.consume_batch_queue(r->queue, BATCH_MS, r->messages,
                                      wanted < MOST_MESSAGES ? (size_t)wanted : MOST_MESSAGES);
        if (count < 0)
            break;
        take(r, into, end, count, news);
        for (ptrdiff_t n = 0; n < count; n++)
            kafka.message_destroy(r->messages[n]);
        is_done = news->outcome != FOLD_OK || news->is_over || news->ends_at >= 0 ||
                  r->error != 0 || fold_is_full(into);
    }
    news->error = r->error;
    news->is_fatal = kafka.fatal_error(r->client, NULL, 0) != 0;
}
