/* What Python may call. `library.py` reads this file too: each line that begins with # is left
 * out there, and the rest has to be what cffi's cdef understands.
 */
#ifndef CHANGELOG_API_H
#define CHANGELOG_API_H
#include <stddef.h>
#include <stdint.h>

/* Find librdkafka's functions through a library that is linked with it; gives the name of what is
 * missing, or NULL. To be called before any function that speaks to Kafka. */
const char *kafka_load(const char *path);
const char *kafka_error_text(int error);

int32_t partition_of(const uint8_t *key, size_t size, int32_t partitions);

/* ---- fold.c: the last record of each key of a range ---- */

typedef struct fold fold;

/* What a call comes to. */
enum {
    FOLD_OK = 0,
    FOLD_OVER = 1,
    FOLD_NO_MEMORY = 2,
    FOLD_FILE = 3, /* errno says what */
    FOLD_STRANGE_KEY = 4,
    FOLD_STRANGE_POSITION = 5,
    FOLD_STRAY = 6
};

/* Records that are added at once; more are added so many at a time. */
enum { FOLD_MOST_RECORDS = 512 };

/* What is wrong with a record that is kept. */
enum { FOLD_SOUND = 0, FOLD_NO_POSITION = 1, FOLD_NO_KEY = 2 };

typedef struct {
    const uint8_t *prefix; /* at most 8 bytes */
    uint32_t prefix_size;
    const uint8_t *since; /* a position, or NULL */
    const uint8_t *before;
    int keeps_faults;
    int32_t partition;
    int32_t homes; /* partitions of the topic; 0 where a key may lie in any */
    int64_t most_bytes;
    uint64_t seed; /* of the hash */
} fold_rules;

typedef struct {
    const uint8_t *key; /* NULL: none */
    size_t key_size;
    const uint8_t *value; /* NULL: a tombstone */
    size_t value_size;
    const uint8_t *position; /* the header; NULL: none */
    size_t position_size;
    int64_t offset;
} fold_record;

typedef struct {
    size_t rows, key_bytes, value_bytes, faults;
} fold_sizes;

/* Arrow's layouts: ends have a number more than rows, what is there is a bit each. */
typedef struct {
    uint8_t *keys, *values, *positions;
    int32_t *key_ends, *value_ends, *position_ends;
    uint8_t *key_is_there, *value_is_there;
    int64_t *offsets;
    uint8_t *faults;
} fold_columns;

fold *fold_new(const fold_rules *rules);
void fold_free(fold *f);
/* Add records in the order of their offsets. */
int fold_add(fold *f, const fold_record *records, size_t count);
int fold_is_full(const fold *f);
/* Write what is held to a file that the caller keeps open, and forget it. */
int fold_spill(fold *f, int file);
/* Make the next bucket ready for fold_pick, the only one where nothing was spilled. */
int fold_next_bucket(fold *f);
/* Choose the next rows of the bucket, at least one if there is any; then fold_fill them. */
int fold_pick(fold *f, size_t most_rows, size_t most_bytes, fold_sizes *sizes);
void fold_fill(const fold *f, const fold_columns *to);
int64_t fold_keys(const fold *f);
int64_t fold_held_bytes(const fold *f);
int64_t fold_records(const fold *f);
int64_t fold_tombstones(const fold *f);
int64_t fold_strange_offset(const fold *f);
int32_t fold_strange_place(const fold *f);

/* ---- reader.c: a range of a partition into a fold ---- */

typedef struct reader reader;

typedef struct {
    int64_t added;
    int outcome; /* of the fold */
    int is_over; /* a record at or behind the end has come */
    int64_t ends_at; /* where the broker says that the partition ends; -1: it does not say */
    int error;       /* librdkafka's code, 0 for none; reader_said gives its words */
    int is_fatal;
} reader_news;

reader *reader_open(const char *const *names, const char *const *values, size_t count, char *said,
                    size_t said_size);
void reader_close(reader *r);
int reader_assign(reader *r, const char *topic, int32_t partition, int64_t offset, int timeout_ms);
/* Read until the range is over, the fold is full, something is told, or the time is out. */
void reader_poll(reader *r, fold *into, int64_t end, int timeout_ms, reader_news *news);
/* What the last error was, in words. */
const char *reader_said(const reader *r);

#endif
