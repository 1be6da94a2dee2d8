/* The producer: what changelog/sink/producer.py decides about, done without an object a record.
 *
 * One thread uses a producer at a time. Callbacks run inside of its calls of poll, flush and purge
 * alone, so that what they note needs no lock.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "clock.h"
#include "kafka.h"

/* How long librdkafka may sleep while it flushes: it looks whether all is acknowledged only when it
 * wakes up, and where nothing but errors is reported nothing wakes it. */
enum { FLUSH_LOOK_MS = 1, FLUSH_LOOKS = 30 };

enum { POSITION_BYTES = 20, TS_BYTES = 8, HEADERS = 3 };

struct producer {
    rd_kafka *rk;
    rd_kafka_topic **topics; /* the handles of those that were written to */
    size_t topic_count;
    failure first; /* the first of a record or of the session */
    failure told;  /* the last of any sort */
    int64_t tellings;
};

static void note(failure *in, int code, const char *said, const char *topic, int is_fatal)
{
    memset(in, 0, sizeof *in);
    in->code = code;
    in->is_fatal = (uint8_t)is_fatal;
    snprintf(in->said, sizeof in->said, "%s", said != NULL ? said : "");
    snprintf(in->topic, sizeof in->topic, "%s", topic != NULL ? topic : "");
}

static void delivered(rd_kafka *rk, const rd_kafka_message *message, void *opaque)
{
    producer *of = opaque;
    (void)rk;
    /* Not rd_kafka_message_errstr: of a message with a value it gives that. */
    if (message->err != 0 && of->first.code == 0)
        note(&of->first, message->err, kafka.err2str(message->err), kafka.topic_name(message->rkt),
             0);
}

static void told(rd_kafka *rk, int code, const char *said, void *opaque)
{
    producer *of = opaque;
    char why[sizeof of->told.said] = "";
    int is_fatal = code == RD_KAFKA_FATAL;
    if (is_fatal) {
        code = kafka.fatal_error(rk, why, sizeof why);
        said = why;
    }
    note(&of->told, code, said, NULL, is_fatal);
    of->tellings++;
    if (is_fatal && of->first.code == 0)
        of->first = of->told;
}

producer *producer_new(const char *const *names, const char *const *values, size_t count, char *said,
                       size_t room)
{
    producer *made = calloc(1, sizeof *made);
    rd_kafka_conf *conf = kafka.conf_new();
    if (made == NULL || conf == NULL)
        goto failed;
    for (size_t i = 0; i < count; i++)
        if (kafka.conf_set(conf, names[i], values[i], said, room) != RD_KAFKA_CONF_OK)
            goto failed;
    kafka.conf_set_opaque(conf, made);
    kafka.conf_set_dr_msg_cb(conf, delivered);
    kafka.conf_set_error_cb(conf, told);
    kafka.conf_set_log_cb(conf, NULL); /* else it prints to standard error */
    made->rk = kafka.new(RD_KAFKA_PRODUCER, conf, said, room);
    if (made->rk != NULL) /* which owns the settings now */
        return made;
failed:
    if (conf != NULL)
        kafka.conf_destroy(conf);
    free(made);
    return NULL;
}

void producer_free(producer *of)
{
    if (of == NULL)
        return;
    for (size_t i = 0; i < of->topic_count; i++)
        kafka.topic_destroy(of->topics[i]);
    kafka.destroy(of->rk);
    free(of->topics);
    free(of);
}

const failure *producer_failure(const producer *of)
{
    return &of->first;
}

const failure *producer_told(const producer *of)
{
    return &of->told;
}

int64_t producer_tellings(const producer *of)
{
    return of->tellings;
}

static rd_kafka_topic *topic_of(producer *of, const char *name)
{
    for (size_t i = of->topic_count; i-- > 0;)
        if (strcmp(kafka.topic_name(of->topics[i]), name) == 0)
            return of->topics[i];
    rd_kafka_topic **larger = realloc(of->topics, (of->topic_count + 1) * sizeof *larger);
    if (larger == NULL)
        return NULL;
    of->topics = larger;
    rd_kafka_topic *made = kafka.topic_new(of->rk, name, NULL);
    if (made != NULL)
        of->topics[of->topic_count++] = made;
    return made;
}

/* Queue one record; takes the headers over, whatever happens. */
static int send(producer *of, rd_kafka_topic *topic, const uint8_t *key, size_t key_size,
                const uint8_t *value, size_t value_size, int32_t partition,
                rd_kafka_headers *headers)
{
    int code = kafka.producev(of->rk, VALUE_RKT, topic, VALUE_PARTITION, partition, VALUE_KEY, key,
                              key_size, VALUE_VALUE, value, value_size, VALUE_FLAGS, RD_KAFKA_COPY,
                              VALUE_HEADERS, headers, VALUE_END);
    if (code != 0 && headers != NULL)
        kafka.headers_destroy(headers);
    return code;
}

int32_t producer_send(producer *of, const char *topic, const uint8_t *key, size_t key_size,
                      const uint8_t *value, size_t value_size, int32_t partition,
                      const char **names, const uint8_t **contents, const size_t *sizes,
                      int32_t count)
{
    rd_kafka_topic *to = topic_of(of, topic);
    rd_kafka_headers *headers = kafka.headers_new((size_t)count);
    if (to == NULL || headers == NULL)
        return RD_KAFKA_INVALID_ARG;
    for (int32_t i = 0; i < count; i++) {
        int code = kafka.header_add(headers, names[i], -1, contents[i], (ptrdiff_t)sizes[i]);
        if (code != 0) {
            kafka.headers_destroy(headers);
            return code;
        }
    }
    return send(of, to, key, key_size, value, value_size, partition, headers);
}

static void put(uint8_t *at, uint64_t value, int count)
{
    for (int i = 0; i < count; i++)
        at[i] = (uint8_t)(value >> 8 * (count - 1 - i));
}

static int send_record(producer *of, rd_kafka_topic *topic, const records *from, const record *at,
                       int32_t partition)
{
    uint8_t position[POSITION_BYTES], ts[TS_BYTES];
    put(position, from->epoch, 4);
    put(position + 4, at->lsn, 8);
    put(position + 12, at->sequence, 8);
    put(ts, (uint64_t)at->ts_us, TS_BYTES);
    rd_kafka_headers *headers = kafka.headers_new(HEADERS);
    if (headers == NULL)
        return RD_KAFKA_NO_MEMORY;
    kafka.header_add(headers, "position", 8, position, POSITION_BYTES);
    kafka.header_add(headers, "op", 2, &at->op, 1);
    kafka.header_add(headers, "ts", 2, ts, TS_BYTES);
    const uint8_t *key = at->has_key ? from->bytes + at->key : NULL;
    const uint8_t *value = at->has_value ? from->bytes + at->value : NULL;
    return send(of, topic, key, (size_t)(at->has_key ? at->value - at->key : 0), value,
                (size_t)(at->has_value ? at->end - at->value : 0), partition, headers);
}

int64_t producer_send_records(producer *of, const char *topic, const records *from, int64_t first,
                              int64_t end, int32_t partition, int32_t *code, int64_t *tally)
{
    rd_kafka_topic *to = topic_of(of, topic);
    *code = to == NULL ? RD_KAFKA_INVALID_ARG : 0;
    for (; first < end && *code == 0; first++) {
        const record *at = &from->list[first];
        if (at->left_out)
            continue;
        if ((*code = send_record(of, to, from, at, partition)) != 0)
            break;
        tally[0]++;
        tally[1] += (at->has_value ? at->end : at->value) - at->key;
    }
    return first;
}

int64_t producer_send_columns(producer *of, const char *topic, const int32_t *key_ends,
                              const uint8_t *keys, const int32_t *value_ends, const uint8_t *values,
                              int64_t first, int64_t end, int32_t partition, int32_t *code)
{
    rd_kafka_topic *to = topic_of(of, topic);
    *code = to == NULL ? RD_KAFKA_INVALID_ARG : 0;
    for (; first < end && *code == 0; first++) {
        const uint8_t *key = key_ends == NULL ? NULL : keys + key_ends[first];
        size_t key_size = key_ends == NULL ? 0 : (size_t)(key_ends[first + 1] - key_ends[first]);
        *code = send(of, to, key, key_size, values + value_ends[first],
                     (size_t)(value_ends[first + 1] - value_ends[first]), partition, NULL);
        if (*code != 0)
            break;
    }
    return first;
}

void producer_poll(producer *of, int32_t timeout_ms)
{
    kafka.poll(of->rk, timeout_ms);
}

int32_t producer_flush(producer *of, int32_t timeout_ms)
{
    int64_t end = now_ms() + timeout_ms;
    int code = RD_KAFKA_TIMED_OUT;
    for (int i = 0; i < FLUSH_LOOKS && code == RD_KAFKA_TIMED_OUT && now_ms() < end; i++)
        code = kafka.flush(of->rk, FLUSH_LOOK_MS);
    if (code != RD_KAFKA_TIMED_OUT)
        return code;
    int64_t left = end - now_ms();
    return kafka.flush(of->rk, left > 0 ? (int)left : 0);
}

int32_t producer_purge(producer *of)
{
    return kafka.purge(of->rk, RD_KAFKA_PURGE_ALL);
}

int32_t producer_queued(producer *of)
{
    return kafka.outq_len(of->rk);
}

void producer_transact(producer *of, int32_t what, int32_t timeout_ms, failure *found)
{
    rd_kafka_error *error = NULL;
    memset(found, 0, sizeof *found);
    switch (what) {
    case TRANSACTIONS_INIT:
        error = kafka.init_transactions(of->rk, timeout_ms);
        break;
    case TRANSACTION_BEGIN:
        error = kafka.begin_transaction(of->rk);
        break;
    case TRANSACTION_COMMIT:
        error = kafka.commit_transaction(of->rk, timeout_ms);
        break;
    case TRANSACTION_ABORT:
        error = kafka.abort_transaction(of->rk, timeout_ms);
        break;
    }
    if (error == NULL)
        return;
    note(found, kafka.error_code(error), kafka.error_string(error), NULL,
         kafka.error_is_fatal(error));
    found->is_retriable = (uint8_t)kafka.error_is_retriable(error);
    found->requires_abort = (uint8_t)kafka.error_txn_requires_abort(error);
    kafka.error_destroy(error);
}
