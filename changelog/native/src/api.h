/* What Python may call. `changelog/native/compiled/library.py` reads this file too: each line that begins with # is left
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
/* Its version: major, minor, revision and state of release, a byte each. */
uint32_t kafka_version(void);
/* Whether its structs are laid out as kafka.h says; if not, `said` names the one that is not,
 * or says why it was not to be seen. Needs no broker. */
int kafka_is_alike(char *said, size_t said_size);

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
    int by_offset; /* the last record decides, whatever its position */
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
/* Hash texts that lie as Arrow has them; the same seed gives equal texts equal hashes. */
void fold_hashes(uint64_t seed, const int32_t *ends, const uint8_t *bytes, int64_t count,
                 uint64_t *to);
int64_t fold_keys(const fold *f);
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
/* Of no topic (NULL): it reads nothing more until it is assigned the next range. */
int reader_assign(reader *r, const char *topic, int32_t partition, int64_t offset, int timeout_ms);
/* Read until the range is over, the fold is full, something is told, or the time is out. */
void reader_poll(reader *r, fold *into, int64_t end, int timeout_ms, reader_news *news);
/* What the last error was, in words. */
const char *reader_said(const reader *r);

/* ---- intake.c: records of some partitions by column, for the verifier ---- */

/* What is wrong with a record. */
enum { INTAKE_SOUND = 0, INTAKE_NO_KEY = 1, INTAKE_OTHER_KEY = 2, INTAKE_NO_PLACE = 3 };
enum { INTAKE_ROW_BYTES = 41 };

typedef struct header {
    const char *name;
    const uint8_t *bytes; /* NULL: none */
    size_t size;
} header;

/* Records in Arrow's layouts; key_ends and value_ends have a number more than rows. Of one that
 * has no place epoch, LSN and sequence are the highest; one without a key gets one of its own. */
typedef struct column_set {
    int64_t rows, key_bytes, value_bytes, faulty;
    int32_t *partitions;
    int64_t *offsets;
    uint32_t *epochs;
    uint64_t *lsns, *sequences;
    uint8_t *faults;
    uint8_t *is_there; /* a bit each: 0 is a tombstone */
    int32_t *key_ends, *value_ends;
    uint8_t *keys, *values;
} column_set;

typedef struct columns columns;

/* The prefix is what every key begins with, at most 8 bytes. */
columns *columns_new(const uint8_t *prefix, uint32_t prefix_size, uint32_t buckets);
void columns_free(columns *c);
/* Add a record; gives 0 when there is no memory. */
int columns_add(columns *c, int32_t partition, int64_t offset, const uint8_t *key, size_t key_size,
                const uint8_t *value, size_t value_size, const header *headers, size_t count);
/* The bytes of all that is held. */
int64_t columns_held(const columns *c);
/* Hand a bucket over, which begins anew. */
void columns_take(columns *c, uint32_t bucket, column_set *to);
void column_set_free(column_set *of);

typedef struct intake intake;

/* Offsets of a partition that are to be read. */
typedef struct intake_slice {
    int32_t partition;
    int32_t is_open;
    int64_t next;
    int64_t end;
} intake_slice;

/* What reading comes to: the partition ended before its slice, the client gave an error, a record
 * came again. */
enum {
    INTAKE_OK = 0,
    INTAKE_SHORT = 1,
    INTAKE_REFUSED = 2,
    INTAKE_DISORDER = 3,
    INTAKE_NO_MEMORY = 4
};

typedef struct {
    int64_t added;
    int32_t open;        /* slices whose end is not reached */
    int32_t outcome;
    int32_t partition;   /* where it happened */
    int64_t offset;
    int32_t error;       /* librdkafka's code */
    char said[256];      /* its words */
} intake_news;

intake *intake_open(const char *const *names, const char *const *values, size_t count, char *said,
                    size_t said_size);
void intake_close(intake *r);
/* Begin to read into columns; gives librdkafka's code, 0 for none. */
int intake_assign(intake *r, columns *into, const char *topic, const intake_slice *slices,
                  uint32_t count, int timeout_ms);
/* Stop fetching, until the next slices; gives librdkafka's code. */
int intake_rest(intake *r);
/* Read until all slices are read, so many bytes are held, something is wrong, or the time is out. */
void intake_poll(intake *r, int timeout_ms, int64_t most_bytes, intake_news *news);

/* ---- batch.c: records of some partitions back to back, for bulk loads ---- */

/* Keys, values and headers lie back to back: what record n has of them ends at ends[n + 1], and
 * begins at ends[n]. Headers are each the size of a name, that of a content or -1, and both. */
typedef struct batch {
    int64_t count;
    int32_t *slots; /* of the reader's slices, the one that each is of */
    int64_t *partitions, *offsets, *timestamps; /* in milliseconds since 1970 */
    uint8_t *is_there; /* BATCH_KEY, BATCH_VALUE */
    int64_t *key_ends, *value_ends, *header_ends;
    uint8_t *keys, *values, *headers;
    int64_t room, key_room, value_room, header_room;
} batch;

enum { BATCH_KEY = 1, BATCH_VALUE = 2 };

void batch_clear(batch *of);
void batch_free(batch *of);
/* The bytes of keys, values and headers. */
int64_t batch_size(const batch *of);
/* Add a record; gives 0 when there is no memory, and adds nothing. */
int batch_add(batch *to, int32_t slot, int32_t partition, int64_t offset, int64_t timestamp,
              const uint8_t *key, size_t key_size, const uint8_t *value, size_t value_size,
              const header *headers, size_t count);

/* Records with one frame: the first 5 bytes, or what there is. */
typedef struct batch_group {
    int64_t shown; /* the first of them */
    int64_t count;
    uint8_t is_other; /* of all frames for which there were no groups left */
} batch_group;

/* Sort records, by their places behind `first`: those without a value, then each group in the order
 * of its first. Gives the number of groups, which are at most `most`; -2 without memory. */
int64_t batch_sort(const batch *of, int64_t first, int64_t end, int by_value, int by_key,
                   int64_t *order, int64_t *gone, batch_group *groups, int64_t most);

typedef struct batch_reader batch_reader;

/* Offsets of a partition that are to be read; an end of -1 is not known. */
typedef struct batch_slice {
    const char *topic;
    int32_t partition;
    int32_t is_open;
    int64_t next; /* behind the last record that was read */
    int64_t end;
} batch_slice;

typedef struct batch_limits {
    int64_t records;
    int64_t bytes;
    int64_t before_ms; /* the first record with this time is an end that was not known; -1: none */
    int32_t timeout_ms;
    int32_t with_headers;
} batch_limits;

typedef struct batch_news {
    int64_t added;
    int32_t open; /* slices whose end is not reached */
    int32_t has_memory;
    int32_t error; /* librdkafka's code of the first error, and where it was */
    int32_t partition;
    char topic[256];
    char said[256];
} batch_news;

batch_reader *batch_reader_open(const char *const *names, const char *const *values, size_t count,
                                char *said, size_t said_size);
void batch_reader_close(batch_reader *r);
/* Begin; gives librdkafka's code, 0 for none. */
int batch_reader_assign(batch_reader *r, const batch_slice *slices, int32_t count);
const batch_slice *batch_reader_slices(const batch_reader *r);
/* Read until all slices are read, a limit is reached, something is wrong, or the time is out. */
void batch_reader_poll(batch_reader *r, batch *into, const batch_limits *until, batch_news *news);

/* ---- decode.c: rows in Avro to columns, for the verifier ---- */

enum {
    DECODE_BOOLEAN, /* a byte each */
    DECODE_INT,
    DECODE_LONG,
    DECODE_FLOAT,
    DECODE_DOUBLE,
    DECODE_DECIMAL, /* 16 bytes each */
    DECODE_STRING,
    DECODE_BYTES,
    DECODE_ARRAY /* of nullable elements */
};

/* A field of the writer's schema; of a branch that there is not, the number is -1. */
typedef struct decode_field {
    int32_t kind;
    int32_t element;
    int32_t is_union;
    int32_t value_branch; /* 0 where there is no union */
    int32_t null_branch;
    int32_t text_branch;
} decode_field;

/* Values in Arrow's layout: `ends` has a number more than there are values. */
typedef struct series {
    int64_t count;
    int64_t size; /* of data */
    uint8_t *is_there;
    int32_t *ends;
    uint8_t *data;
    int64_t bit_room, end_room, data_room;
} series;

typedef struct decoded {
    series own;
    series text;  /* values that took the text's branch */
    series items; /* of an array, whose own ends count them */
} decoded;

/* Decode rows that all begin with a frame of 5 bytes; gives how many were before the first that is
 * not exactly what the fields say, or all. */
int64_t decode_rows(const decode_field *fields, int32_t count, const uint8_t *frame,
                    const uint8_t *bytes, const int32_t *ends, int64_t rows, decoded *to);
void decoded_free(decoded *of);

/* ---- texts.c: what is read, and the records made of it ---- */

/* Texts back to back, as they arrived: text n ends where ends[n] says, and the next begins there. */
typedef struct texts {
    uint8_t *bytes;
    int64_t *ends;
    int64_t count;
    int64_t room;   /* of bytes */
    int64_t places; /* of ends */
} texts;

int texts_add(texts *to, const uint8_t *bytes, int64_t size);

/* Add those from `first` to before `end` of another. */
int texts_add_range(texts *to, const texts *from, int64_t first, int64_t end);
void texts_clear(texts *of);
void texts_free(texts *of);

/* A record of a topic. Its key lies from `key` to `value`, its value from there to `end`. */
typedef struct record {
    int64_t key;
    int64_t value;
    int64_t end;
    uint64_t lsn;
    uint64_t sequence;
    int64_t ts_us;
    uint8_t op; /* the letter of the header */
    uint8_t has_key;
    uint8_t has_value;
    uint8_t left_out; /* not to be produced */
} record;

/* Records of one topic, in their order. */
typedef struct records {
    uint8_t *bytes;
    int64_t size;
    int64_t room;
    record *list;
    int64_t count;
    int64_t places;
    uint32_t epoch;
    int64_t rows[4];  /* how many rows were encoded: created, updated, deleted, read */
    int64_t sizes[4]; /* bytes of their keys and values */
    void *fields;     /* scratch of the encoder */
    int64_t field_places;
    uint8_t *plain; /* of a line: fields without their escapes */
    int64_t plain_room;
    uint8_t *item; /* of an array: an element without its quotes */
    int64_t item_room;
} records;

int records_add(records *to, const uint8_t *key, int64_t key_size, const uint8_t *value,
                int64_t value_size, uint64_t lsn, uint64_t sequence, int64_t ts_us, uint8_t op);
void records_clear(records *of);

/* The last record of a partition that the log holds already; none of the epoch: an LSN of 0. */
typedef struct written {
    uint64_t lsn;
    uint64_t sequence;
} written;

/* Leave out the records from one of them on that the partition of their key holds already; gives
 * how many. The counts are made anew of what is left: there a row that moves is two. */
int64_t records_leave_out(records *of, int64_t first, const written *in, int32_t partitions);
void records_free(records *of);

/* ---- copyrows.c: rows in Avro to binary COPY, for bulk loads ---- */

/* How a field is written in Avro. */
enum {
    AVRO_BOOLEAN,
    AVRO_INT,
    AVRO_LONG,
    AVRO_FLOAT,
    AVRO_DOUBLE,
    AVRO_DECIMAL,
    AVRO_STRING,
    AVRO_BYTES,
    AVRO_ARRAY
};

/* How a cell is written in COPY. */
enum {
    CELL_BOOL,
    CELL_INT2,
    CELL_INT4,
    CELL_INT8,
    CELL_FLOAT4,
    CELL_FLOAT8,
    CELL_NUMERIC,
    CELL_TEXT, /* and bytes */
    CELL_JSONB,
    CELL_UUID,
    CELL_DATE,
    CELL_MICROS, /* a moment, from microseconds since 1970 */
    CELL_MILLIS,
    CELL_ARRAY
};

/* A field of a writer's schema; of a branch that there is not, the number is -1. */
typedef struct avro_field {
    int32_t kind;
    int32_t element; /* kind of an array's elements, which may be null */
    int32_t is_union;
    int32_t value_branch; /* 0 where there is no union */
    int32_t null_branch;
    int32_t text_branch; /* of which NaN alone is known, in a decimal */
    int32_t cell;        /* that takes it, or -1 */
} avro_field;

/* Keys or values of one schema, back to back: row n begins where ends[n] says. */
typedef struct avro_rows {
    const avro_field *fields;
    int32_t count;
    const uint8_t *frame; /* of 5 bytes, which each begins with */
    const uint8_t *bytes;
    const int64_t *ends;
} avro_rows;

typedef struct copy_cell {
    int32_t form;
    int32_t element; /* form of an array's elements */
    int32_t oid;     /* of their type */
    int32_t scale;   /* of a decimal */
    const int64_t *numbers; /* where no field fills it, at the place of the row; NULL: null */
} copy_cell;

/* Append rows in COPY's binary format as one text: those at the places that are chosen, or the first
 * ones where none are (NULL). Gives how many were written before the first that is not exactly what
 * the fields say or has no form here, or all; -2 without memory. */
int64_t copy_rows(const avro_rows *values, const avro_rows *keys, const copy_cell *cells,
                  int32_t count, const int64_t *chosen, int64_t rows, texts *to);

/* ---- jsonlines.c: objects of JSON to COPY's text, for bulk loads ---- */

/* Sorts of values that a column takes as they are here. */
enum { TAKES_TEXT = 1, TAKES_NUMBER = 2, TAKES_TRUTH = 4, TAKES_NESTED = 8 };

/* A column that a member of the same name fills. */
typedef struct json_column {
    const uint8_t *name;
    int64_t size; /* of the name */
    int32_t takes;
    int32_t fraction; /* the most digits behind the point, or -1 where none are rounded away */
    int32_t is_moment;
} json_column;

/* Append lines of COPY's text as one text: of the objects at the places that are chosen, from one of
 * them on. Behind the columns stand the place and `f`, where numbers are wanted. Gives how many were
 * written before the first that has no form here, or all; -2 without memory. */
int64_t json_lines(const json_column *columns, int32_t count, int32_t all_known, int32_t numbered,
                   const uint8_t *bytes, const int64_t *ends, const int64_t *chosen, int64_t first,
                   int64_t rows, texts *to);

/* ---- csvlines.c: lines of CSV and whole texts to COPY's text, for bulk loads ---- */

enum { WHOLE_KEY = -1, WHOLE_VALUE = -2 }; /* in place of the number of a field */

typedef struct csv_column {
    int32_t field; /* which fills it */
    int32_t fraction; /* the most digits behind the point, or -1 where none are rounded away */
    int32_t is_moment;
} csv_column;

/* The same of the records that are chosen, by their places behind `base`. Values have so many
 * fields, with a delimiter between them; 0: they are not looked into. */
int64_t csv_lines(const csv_column *columns, int32_t count, int32_t fields, uint8_t delimiter,
                  int32_t numbered, const batch *of, int64_t base, const int64_t *chosen,
                  int64_t first, int64_t rows, texts *to);

/* ---- avro.c, rows.c: rows to records ---- */

enum {
    KIND_BOOLEAN,
    KIND_INTEGER, /* int and long */
    KIND_FLOAT,
    KIND_DOUBLE,
    KIND_DECIMAL,
    KIND_STRING, /* uuid too */
    KIND_BYTES,
    KIND_DATE,
    KIND_MOMENT, /* timestamp, with and without time zone */
    KIND_ARRAY,
    KIND_UNKNOWN /* never encoded here */
};
enum { MASK_NONE, MASK_HASH, MASK_CONSTANT };

/* How one column is written. */
typedef struct column {
    int32_t place; /* in the row as it comes */
    int32_t kind;
    int32_t element; /* kind of an array's elements */
    int32_t scale;
    int32_t mask;
    uint8_t nullable;
    uint8_t has_branch; /* whether `first` stands before a value */
    uint8_t first;      /* branch of the type */
    uint8_t second;     /* branch of the escape */
    uint8_t null_branch;
    uint8_t delimiter;
} column;

/* How the rows of one version of a table are written. */
typedef struct table {
    int32_t width; /* columns of a row as it comes */
    int32_t keys;
    int32_t values;
    const column *key;
    const column *value;
    uint8_t key_frame[5];
    uint8_t value_frame[5];
    const uint8_t *hash_key;
    int64_t hash_key_size;
    const uint8_t *constant;
    int64_t constant_size;
} table;

/* What the encoders give beside the number of a row: done, no memory, a line of another width. */
enum { ALL_DONE = -1, NO_MEMORY = -2 };

/* A row of the stream: which message it is and where it stands. */
typedef struct row {
    int64_t message;
    int64_t next; /* row of the same relation, or -1 */
    uint64_t lsn;
    uint64_t sequence;
    int64_t ts_us;
    uint32_t oid;
    uint32_t xid;
    uint8_t letter;
} row;

/* A relation of which there are rows in a run. */
typedef struct seen {
    uint32_t oid;
    int64_t first;
    int64_t last;
} seen;

/* A run of row messages with whole transactions among them. */
typedef struct run {
    row *rows;
    int64_t count;
    int64_t places;
    seen *relations;
    int64_t relation_count;
    int64_t relation_places;
    uint32_t *xids; /* of the transactions that began */
    int64_t begun;
    int64_t xid_places;
    /* the transaction that began last: before the run, and behind it */
    uint64_t lsn;
    int64_t ts_us;
    uint32_t xid;
    uint8_t is_open;
    uint64_t next_sequence;
    int64_t commits;
    uint64_t end_lsn; /* of the last that ended */
} run;

int run_scan(run *into, const texts *from, int64_t first, int64_t end, uint64_t step);
void run_free(run *of);

/* Encode the rows of one relation from one of them on. Gives ALL_DONE, NO_MEMORY, or a row that
 * does not go this way: the caller adds its records and goes on behind it. */
int64_t encode_rows(const table *of, const texts *from, const run *in, int64_t first, records *to);

/* The same for lines of COPY's text format without their line feeds; their sequence numbers are
 * `sequence` + their own number. */
int64_t encode_lines(const table *of, const texts *from, int64_t first, uint64_t lsn,
                     uint64_t sequence, int64_t ts_us, records *to);

/* ---- read.c: messages of the stream, and lines of COPY ---- */

/* Where a stretch of messages ends that are all rows, begins and commits, or all others. */
int64_t messages_alike(const texts *of, int64_t first, uint8_t *is_plain);

/* The place behind the last message that ends a transaction, or 0. */
int64_t messages_behind_commit(const texts *of);

/* The place of the first message from `first` on that ends a transaction, or the end. */
int64_t messages_commit_from(const texts *of, int64_t first);

/* Where a stretch of whole transactions ends that begins at `first`, all of which commit before
 * `lsn`; `first` where there is none. */
int64_t messages_whole_before(const texts *of, int64_t first, uint64_t lsn);

/* The functions of libpq that psycopg2 brings. */
typedef struct libpq {
    int (*get_copy_data)(void *connection, char **buffer, int async);
    int (*consume_input)(void *connection);
    void (*free_memory)(void *memory);
} libpq;

/* What keepalives have said. */
typedef struct keepalives {
    uint64_t wal_end; /* the latest */
    uint8_t reply;    /* whether an answer is wanted */
    int64_t heard;    /* messages of any sort */
} keepalives;

enum { READ_ALL, READ_ENDED, READ_FAILED, READ_LOST, READ_ODD, READ_NO_MEMORY };

/* Read the payloads that have arrived on a replication connection, without waiting: until there
 * are `limit`, or `most` bytes of them. */
int32_t read_stream(const libpq *with, void *connection, int64_t limit, int64_t most, texts *to,
                    keepalives *told);

/* Read lines of a COPY, waiting for them; without their line feeds. */
int32_t read_copy(const libpq *with, void *connection, int64_t limit, int64_t most, texts *to);

/* ---- produce.c: records to a broker ---- */

/* An error of librdkafka's. */
typedef struct failure {
    int32_t code; /* 0: none */
    uint8_t is_fatal;
    uint8_t is_retriable;
    uint8_t requires_abort;
    char said[512];
    char topic[256];
} failure;

typedef struct producer producer;

/* Make a producer; NULL, and why in `said`, when it does not know a setting. */
producer *producer_new(const char *const *names, const char *const *values, size_t count, char *said,
                       size_t room);
void producer_free(producer *of);

/* The first failure of a record or of the session, and what was last told of a connection. */
const failure *producer_failure(const producer *of);
const failure *producer_told(const producer *of);
int64_t producer_tellings(const producer *of);

/* Queue a record; gives an error's code or 0. The partition -1 is the key's. */
int32_t producer_send(producer *of, const char *topic, const uint8_t *key, size_t key_size,
                      const uint8_t *value, size_t value_size, int32_t partition,
                      const char **names, const uint8_t **contents, const size_t *sizes,
                      int32_t count);

/* Queue records from one of them up to an end with the headers position, op, ts. Gives the number
 * of the first that was not taken, or the end, and an error's code or 0; adds to `tally` how many
 * were queued, and the bytes of their keys and values. */
int64_t producer_send_records(producer *of, const char *topic, const records *from, int64_t first,
                              int64_t end, int32_t partition, int32_t *code, int64_t *tally);

/* Queue rows of two columns, from one of them up to an end, as keys and values without headers. Of
 * a column `ends` says where each row's bytes begin, and the next one's. Gives the number of the
 * first that was not taken, or the end, and an error's code or 0. */
int64_t producer_send_columns(producer *of, const char *topic, const int32_t *key_ends,
                              const uint8_t *keys, const int32_t *value_ends, const uint8_t *values,
                              int64_t first, int64_t end, int32_t partition, int32_t *code);

void producer_poll(producer *of, int32_t timeout_ms);
int32_t producer_flush(producer *of, int32_t timeout_ms);
int32_t producer_purge(producer *of);
int32_t producer_queued(producer *of);

enum { TRANSACTIONS_INIT, TRANSACTION_BEGIN, TRANSACTION_COMMIT, TRANSACTION_ABORT };
void producer_transact(producer *of, int32_t what, int32_t timeout_ms, failure *found);

/* ---- sentrows.c: hashes of rows as PostgreSQL sends them ---- */

/* The layout of a column's values, Arrow's: numbers of 64 bits, bytes of 0 or 1, days or microseconds
 * since 1970, decimals of 128 bits, or bytes with their ends. */
enum {
    SENT_INT64,
    SENT_FLOAT4,
    SENT_FLOAT8,
    SENT_BOOL,
    SENT_DATE,
    SENT_TIMESTAMP,
    SENT_NUMERIC,
    SENT_BYTES
};

typedef struct {
    int32_t kind;
    uint32_t oid;  /* of the type in PostgreSQL */
    int32_t scale; /* of a decimal */
    int64_t offset; /* the place of the first row in the arrays */
    const uint8_t *is_there; /* a bit for each value; NULL: none is null */
    const int32_t *ends;     /* of bytes */
    const uint8_t *data;
} sent_column;

/* The hash of each row; gives 0 when there is no memory. */
int sent_hashes(const sent_column *columns, int32_t count, int64_t rows, uint64_t *hashes);
/* Count the rows of each bucket, and add up their hashes modulo 2^64. Buckets lie between -most and
 * most, and both arrays have a place for each from -most on. */
void sent_sums(const int64_t *buckets, const uint64_t *hashes, int64_t rows, int64_t most,
               int64_t *counts, uint64_t *totals);

/* Which declarations this was compiled with: who opens it compares them with those it reads. */
const char *api_stamp(void);

#endif
