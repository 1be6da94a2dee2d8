/* One value: PostgreSQL's text to Avro's bytes. */
#ifndef CHANGELOG_AVRO_H
#define CHANGELOG_AVRO_H

#include "api.h"
#include "sha256.h"

/* A field of a row: where its text is, and whether there is one. */
typedef struct field {
    const uint8_t *text;
    int64_t size;
    uint8_t letter; /* t: text, n: null, u: left out, as in pgoutput */
} field;

/* What became of a value or a row. */
typedef enum { DONE, ODD, FAILED } outcome;

/* Append what a record of some columns has; ODD when a value is not known here. */
outcome encode_record(const table *of, const column *columns, int32_t count, const uint8_t *frame,
                      const field *fields, const hmac_key *hashing, records *to);

#endif
