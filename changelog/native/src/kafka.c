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
