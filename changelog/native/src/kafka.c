#include "kafka.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "api.h"

kafka_functions kafka;

const char *kafka_load(const char *path)
{
    /* A handle finds the symbols of what the library itself is linked with, too. */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return path;
    kafka_functions found;
    void *symbol;
#define F(name, result, parameters)                                                                \
    symbol = dlsym(library, "rd_kafka_" #name);                                                    \
    if (symbol == NULL)                                                                            \
        return "rd_kafka_" #name;                                                                  \
    memcpy(&found.name, &symbol, sizeof symbol);
    KAFKA_FUNCTIONS(F)
#undef F
    kafka = found;
    return NULL;
}

uint32_t kafka_version(void)
{
    return (uint32_t)kafka.version();
}

/* Whether a list that librdkafka fills says where its entries lie, and each of them what it is. */
static int list_is_alike(void)
{
    enum { PARTITION = 7, OTHER = 9 };
    rd_kafka_partition_list *made = kafka.topic_partition_list_new(2);
    if (made == NULL)
        return 0;
    const void *first = kafka.topic_partition_list_add(made, "first", PARTITION);
    const void *second = kafka.topic_partition_list_add(made, "second", OTHER);
    /* The list tells where they are, which only the right size of each brings to the second. */
    int is_alike = made->cnt == 2 && made->size >= 2 && first == &made->elems[0] &&
                   second == &made->elems[1];
    for (int i = 0; i < 2 && is_alike; i++) {
        const rd_kafka_topic_partition *at = &made->elems[i];
        is_alike = at->topic != NULL && strcmp(at->topic, i == 0 ? "first" : "second") == 0 &&
                   at->partition == (i == 0 ? PARTITION : OTHER) && at->offset == OFFSET_INVALID &&
                   at->metadata == NULL && at->metadata_size == 0 && at->opaque == NULL &&
                   at->err == 0;
    }
    kafka.topic_partition_list_destroy(made);
    return is_alike;
}

/* A record that is sent, and whether the message that reports it says the same in each field. */
enum { SENT_PARTITION = 7, REPORT_MS = 1000 };
typedef struct sent {
    const rd_kafka_topic *topic;
    char key[4];
    char value[6];
    int is_alike;
} sent;

static void on_report(rd_kafka *client, const rd_kafka_message *message, void *opaque)
{
    sent *of = opaque;
    (void)client;
    /* Pointers are compared before one is followed: the key is librdkafka's own copy. */
    of->is_alike = message->err == RD_KAFKA_PURGE_QUEUE && message->rkt == of->topic &&
                   message->partition == SENT_PARTITION && message->payload == of->value &&
                   message->len == sizeof of->value && message->key_len == sizeof of->key &&
                   message->offset == OFFSET_INVALID && message->private_ == of &&
                   message->key != NULL && memcmp(message->key, of->key, sizeof of->key) == 0;
}

/* A record that is dropped before it went anywhere comes back in a message. */
static int message_is_alike(rd_kafka *client, sent *of)
{
    rd_kafka_topic *topic = kafka.topic_new(client, "none", NULL);
    if (topic == NULL)
        return 0;
    of->topic = topic;
    int code = kafka.producev(client, VALUE_RKT, topic, VALUE_PARTITION, (int32_t)SENT_PARTITION,
                              VALUE_KEY, of->key, sizeof of->key, VALUE_VALUE, of->value,
                              sizeof of->value, VALUE_FLAGS, 0, VALUE_OPAQUE, of, VALUE_END);
    if (code == 0 && kafka.purge(client, RD_KAFKA_PURGE_ALL) == 0)
        kafka.poll(client, REPORT_MS);
    kafka.topic_destroy(topic);
    return of->is_alike;
}

int kafka_is_alike(char *said, size_t said_size)
{
    if (!list_is_alike()) {
        snprintf(said, said_size, "rd_kafka_topic_partition_list_t");
        return 0;
    }
    sent record = {.key = "key", .value = "value"};
    rd_kafka_conf *conf = kafka.conf_new();
    kafka.conf_set(conf, "log_level", "0", NULL, 0); /* else it says that it has no brokers */
    kafka.conf_set_opaque(conf, &record);
    kafka.conf_set_dr_msg_cb(conf, on_report);
    rd_kafka *client = kafka.new(RD_KAFKA_PRODUCER, conf, said, said_size);
    if (client == NULL) {
        kafka.conf_destroy(conf);
        return 0;
    }
    int is_alike = message_is_alike(client, &record);
    kafka.destroy(client);
    if (!is_alike)
        snprintf(said, said_size, "rd_kafka_message_t");
    return is_alike;
}
