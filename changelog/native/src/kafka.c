#include "kafka.h"

#include <dlfcn.h>
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

int kafka_is_alike(void)
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
