/* librdkafka, found at run time in the copy that confluent_kafka brings.
 *
 * Only its public interface (rdkafka.h), so that no header and no second copy of it is needed. The
 * layout of its structs and the numbers below are part of that interface, as of version 2; each field
 * is compared with what the copy that was found writes there, before anything else is called
 * (changelog/native/compiled/client.py).
 */
#ifndef CHANGELOG_KAFKA_H
#define CHANGELOG_KAFKA_H

#include <stddef.h>
#include <stdint.h>

typedef struct rd_kafka rd_kafka;
typedef struct rd_kafka_conf rd_kafka_conf;
typedef struct rd_kafka_topic rd_kafka_topic;
typedef struct rd_kafka_queue rd_kafka_queue;
typedef struct rd_kafka_headers rd_kafka_headers;
typedef struct rd_kafka_error rd_kafka_error;

typedef struct rd_kafka_message {
    int err;
    rd_kafka_topic *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *private_;
} rd_kafka_message;

typedef struct rd_kafka_topic_partition {
    char *topic;
    int32_t partition;
    int64_t offset;
    void *metadata;
    size_t metadata_size;
    void *opaque;
    int err;
    void *private_;
} rd_kafka_topic_partition;

typedef struct rd_kafka_partition_list {
    int cnt;
    int size;
    rd_kafka_topic_partition *elems;
} rd_kafka_partition_list;

enum { OFFSET_INVALID = -1001 };
enum { RD_KAFKA_PRODUCER = 0, RD_KAFKA_CONSUMER = 1, RD_KAFKA_CONF_OK = 0 };
enum {
    RD_KAFKA_FATAL = -150,
    RD_KAFKA_PURGE_QUEUE = -152,
    RD_KAFKA_NO_MEMORY = -179,
    RD_KAFKA_TIMED_OUT = -185,
    RD_KAFKA_INVALID_ARG = -186
};

/* What stands before each argument of producev. */
enum {
    VALUE_END = 0,
    VALUE_TOPIC = 1,
    VALUE_RKT = 2,
    VALUE_PARTITION = 3,
    VALUE_VALUE = 4,
    VALUE_KEY = 5,
    VALUE_OPAQUE = 6,
    VALUE_FLAGS = 7,
    VALUE_HEADERS = 10,
};
enum { RD_KAFKA_COPY = 2, RD_KAFKA_PURGE_ALL = 3 };

/* name, result, parameters */
#define KAFKA_FUNCTIONS(F)                                                                         \
    F(version, int, (void))                                                                        \
    F(conf_new, rd_kafka_conf *, (void))                                                           \
    F(conf_destroy, void, (rd_kafka_conf *))                                                       \
    F(conf_set, int, (rd_kafka_conf *, const char *, const char *, char *, size_t))                \
    F(conf_set_opaque, void, (rd_kafka_conf *, void *))                                            \
    F(conf_set_error_cb, void,                                                                     \
      (rd_kafka_conf *, void (*)(rd_kafka *, int, const char *, void *)))                          \
    F(new, rd_kafka *, (int, rd_kafka_conf *, char *, size_t))                                     \
    F(destroy, void, (rd_kafka *))                                                                 \
    F(fatal_error, int, (rd_kafka *, char *, size_t))                                              \
    F(err2str, const char *, (int))                                                                \
    F(poll_set_consumer, int, (rd_kafka *))                                                        \
    F(queue_get_consumer, rd_kafka_queue *, (rd_kafka *))                                          \
    F(queue_destroy, void, (rd_kafka_queue *))                                                     \
    F(consume_batch_queue, ptrdiff_t, (rd_kafka_queue *, int, rd_kafka_message **, size_t))        \
    F(message_destroy, void, (rd_kafka_message *))                                                 \
    F(message_timestamp, int64_t, (const rd_kafka_message *, int *))                               \
    F(message_headers, int, (const rd_kafka_message *, rd_kafka_headers **))                       \
    F(header_get_all, int,                                                                         \
      (const rd_kafka_headers *, size_t, const char **, const void **, size_t *))                  \
    F(header_get_last, int, (const rd_kafka_headers *, const char *, const void **, size_t *))     \
    F(topic_partition_list_new, rd_kafka_partition_list *, (int))                                  \
    F(topic_partition_list_add, rd_kafka_topic_partition *,                                        \
      (rd_kafka_partition_list *, const char *, int32_t))                                          \
    F(topic_partition_list_destroy, void, (rd_kafka_partition_list *))                             \
    F(assign, int, (rd_kafka *, const rd_kafka_partition_list *))                                  \
    F(topic_new, rd_kafka_topic *, (rd_kafka *, const char *, void *))                             \
    F(topic_destroy, void, (rd_kafka_topic *))                                                     \
    F(metadata, int, (rd_kafka *, int, rd_kafka_topic *, const void **, int))                      \
    F(metadata_destroy, void, (const void *))                                                      \
    F(consumer_close, int, (rd_kafka *))                                                           \
    F(pause_partitions, int, (rd_kafka *, rd_kafka_partition_list *))                              \
    F(resume_partitions, int, (rd_kafka *, rd_kafka_partition_list *))                             \
    F(conf_set_log_cb, void,                                                                       \
      (rd_kafka_conf *, void (*)(const rd_kafka *, int, const char *, const char *)))              \
    F(conf_set_dr_msg_cb, void,                                                                    \
      (rd_kafka_conf *, void (*)(rd_kafka *, const rd_kafka_message *, void *)))                   \
    F(producev, int, (rd_kafka *, ...))                                                            \
    F(headers_new, rd_kafka_headers *, (size_t))                                                   \
    F(headers_destroy, void, (rd_kafka_headers *))                                                 \
    F(header_add, int,                                                                             \
      (rd_kafka_headers *, const char *, ptrdiff_t, const void *, ptrdiff_t))                      \
    F(poll, int, (rd_kafka *, int))                                                                \
    F(flush, int, (rd_kafka *, int))                                                               \
    F(purge, int, (rd_kafka *, int))                                                               \
    F(outq_len, int, (rd_kafka *))                                                                 \
    F(topic_name, const char *, (const rd_kafka_topic *))                                          \
    F(init_transactions, rd_kafka_error *, (rd_kafka *, int))                                      \
    F(begin_transaction, rd_kafka_error *, (rd_kafka *))                                           \
    F(commit_transaction, rd_kafka_error *, (rd_kafka *, int))                                     \
    F(abort_transaction, rd_kafka_error *, (rd_kafka *, int))                                      \
    F(error_code, int, (const rd_kafka_error *))                                                   \
    F(error_string, const char *, (const rd_kafka_error *))                                        \
    F(error_is_fatal, int, (const rd_kafka_error *))                                               \
    F(error_is_retriable, int, (const rd_kafka_error *))                                           \
    F(error_txn_requires_abort, int, (const rd_kafka_error *))                                     \
    F(error_destroy, void, (rd_kafka_error *))

typedef struct kafka_functions {
#define F(name, result, parameters) result(*name) parameters;
    KAFKA_FUNCTIONS(F)
#undef F
} kafka_functions;

/* Filled by kafka_load. */
extern kafka_functions kafka;

#endif
