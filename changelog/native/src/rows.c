/* Rows to records: messages of pgoutput, and lines of COPY.
 *
 * The rules are those of changelog/source/stream/pgoutput.py, changelog/source/stream/assemble.py and
 * changelog/source/snapshot/snapshot.py. A row that is in any way out of the ordinary is given back to
 * the caller, who takes it by them.
 */
#include <string.h>

#include "api.h"
#include "avro.h"
#include "grow.h"
#include "texts.h"

enum { ROW_BYTES = 6, BEGIN_BYTES = 21, COMMIT_BYTES = 26, CREATED = 0, UPDATED, DELETED, READ };
static const int64_t POSTGRES_EPOCH_US = 946684800000000;

static uint64_t number(const uint8_t *at, int count)
{
    uint64_t value = 0;
    for (int i = 0; i < count; i++)
        value = value << 8 | at[i];
    return value;
}

/* --- a run of messages ------------------------------------------------------------------------ */

static int begin(run *of, const uint8_t *message, int64_t size)
{
    if (size != BEGIN_BYTES || of->is_open)
        return 0;
    int64_t ts_us = (int64_t)number(message + 9, 8);
    if (ts_us > INT64_MAX - POSTGRES_EPOCH_US || !GROWN(of->xids, of->xid_places, of->begun + 1))
        return 0;
    of->lsn = number(message + 1, 8);
    of->ts_us = ts_us + POSTGRES_EPOCH_US;
    of->xid = (uint32_t)number(message + 17, 4);
    of->xids[of->begun++] = of->xid;
    of->is_open = 1;
    of->next_sequence = 0;
    return 1;
}

static int commit(run *of, const uint8_t *message, int64_t size)
{
    if (size != COMMIT_BYTES || !of->is_open || number(message + 2, 8) != of->lsn)
        return 0;
    of->is_open = 0;
    of->end_lsn = number(message + 10, 8);
    of->commits++;
    return 1;
}

static seen *relation_of(run *of, uint32_t oid, int64_t place)
{
    /* The last one is asked first: rows of one table come together. */
    for (int64_t i = of->relation_count; i-- > 0;)
        if (of->relations[i].oid == oid)
            return &of->relations[i];
    if (!GROWN(of->relations, of->relation_places, of->relation_count + 1))
        return NULL;
    seen *added = &of->relations[of->relation_count++];
    *added = (seen){.oid = oid, .first = place, .last = -1};
    return added;
}

static int add_row(run *of, const uint8_t *message, int64_t size, int64_t place, uint64_t step)
{
    if (size < ROW_BYTES || !of->is_open || !GROWN(of->rows, of->places, of->count + 1))
        return 0;
    uint32_t oid = (uint32_t)number(message + 1, 4);
    seen *relation = relation_of(of, oid, of->count);
    if (relation == NULL)
        return 0;
    if (relation->last >= 0)
        of->rows[relation->last].next = of->count;
    relation->last = of->count;
    of->rows[of->count++] = (row){.message = place,
                                  .next = -1,
                                  .lsn = of->lsn,
                                  .sequence = of->next_sequence,
                                  .ts_us = of->ts_us,
                                  .oid = oid,
                                  .xid = of->xid,
                                  .letter = message[0]};
    of->next_sequence += step;
    return 1;
}

int run_scan(run *into, const texts *from, int64_t first, int64_t end, uint64_t step)
{
    into->count = into->relation_count = into->begun = into->commits = 0;
    for (int64_t place = first; place < end; place++) {
        int64_t start = start_of(from, place), size = from->ends[place] - start;
        const uint8_t *message = from->bytes + start;
        int done = 0;
        switch (size > 0 ? message[0] : 0) {
        case 'B':
            done = begin(into, message, size);
            break;
        case 'C':
            done = commit(into, message, size);
            break;
        case 'I':
        case 'U':
        case 'D':
            done = add_row(into, message, size, place, step);
            break;
        }
        if (!done)
            return 0;
    }
    return 1;
}

void run_free(run *of)
{
    free(of->rows);
    free(of->relations);
    free(of->xids);
    memset(of, 0, sizeof *of);
}

/* --- tuples ----------------------------------------------------------------------------------- */

/* Read a tuple; gives what follows it, or NULL when it is cut off or of another width. */
static const uint8_t *read_tuple(const uint8_t *at, const uint8_t *end, int32_t width,
                                 field *fields)
{
    if (end - at < 2 || number(at, 2) != (uint64_t)width)
        return NULL;
    at += 2;
    for (int32_t i = 0; i < width; i++) {
        if (at >= end)
            return NULL;
        field *found = &fields[i];
        uint8_t letter = *at++;
        *found = (field){.text = at, .size = 0, .letter = letter};
        if (found->letter == 't') {
            if (end - at < 4)
                return NULL;
            found->size = (int64_t)number(at, 4);
            found->text = at += 4;
            if (end - at < found->size)
                return NULL;
            at += found->size;
        } else if (found->letter != 'n' && found->letter != 'u') {
            return NULL;
        }
    }
    return at;
}

static int is_same(const field *one, const field *other)
{
    return one->letter == 't' && other->letter == 't' && one->size == other->size &&
           (one->size == 0 || memcmp(one->text, other->text, (size_t)one->size) == 0);
}

/* Find the fields of a row's message; gives 0 for one that is out of the ordinary. */
static int read_row(const table *of, const uint8_t *message, const uint8_t *end, field *fields)
{
    const uint8_t *at = message + ROW_BYTES;
    uint8_t letter = message[ROW_BYTES - 1];
    if (message[0] == 'D') {
        if (letter != 'K' && letter != 'O')
            return 0;
    } else if (message[0] == 'U' && (letter == 'K' || letter == 'O')) {
        field *old = fields + of->width;
        at = read_tuple(at, end, of->width, old);
        if (at == NULL || at >= end || *at++ != 'N')
            return 0;
        if (read_tuple(at, end, of->width, fields) != end)
            return 0;
        for (int32_t i = 0; i < of->keys; i++) /* a row that moves writes two records */
            if (!is_same(&old[of->key[i].place], &fields[of->key[i].place]))
                return 0;
        return 1;
    } else if (letter != 'N') {
        return 0;
    }
    return read_tuple(at, end, of->width, fields) == end;
}

/* --- records ---------------------------------------------------------------------------------- */

static outcome add_record(const table *of, const field *fields, const hmac_key *hashing,
                          const row *at, uint8_t op, records *to)
{
    if (!GROWN(to->list, to->places, to->count + 1))
        return FAILED;
    int64_t start = to->size, middle;
    outcome done = DONE;
    if (of->keys > 0)
        done = encode_record(of, of->key, of->keys, of->key_frame, fields, hashing, to);
    middle = to->size;
    if (done == DONE && at->letter != 'D')
        done = encode_record(of, of->value, of->values, of->value_frame, fields, hashing, to);
    if (done != DONE) {
        to->size = start;
        return done;
    }
    to->list[to->count++] = (record){.key = start,
                                     .value = middle,
                                     .end = to->size,
                                     .lsn = at->lsn,
                                     .sequence = at->sequence,
                                     .ts_us = at->ts_us,
                                     .op = op,
                                     .has_key = of->keys > 0,
                                     .has_value = at->letter != 'D'};
    return DONE;
}

static void count(records *to, int what, int64_t start)
{
    to->rows[what]++;
    to->sizes[what] += to->size - start;
}

static void prepare(const table *of, hmac_key *hashing)
{
    if (of->hash_key != NULL)
        hmac_prepare(hashing, of->hash_key, (size_t)of->hash_key_size);
}

int64_t encode_rows(const table *of, const texts *from, const run *in, int64_t first, records *to)
{
    hmac_key hashing = {{0}, {0}};
    field *fields = to->fields;
    if (!grown((void **)&fields, &to->field_places, 2 * (int64_t)of->width, sizeof *fields))
        return NO_MEMORY;
    to->fields = fields;
    prepare(of, &hashing);
    for (int64_t place = first; place >= 0; place = in->rows[place].next) {
        const row *at = &in->rows[place];
        const uint8_t *message = from->bytes + start_of(from, at->message);
        if (!read_row(of, message, from->bytes + from->ends[at->message], fields))
            return place;
        int what = at->letter == 'I' ? CREATED : at->letter == 'U' ? UPDATED : DELETED;
        int64_t start = to->size;
        outcome done = add_record(of, fields, &hashing, at, (uint8_t)"cud"[what], to);
        if (done != DONE)
            return done == ODD ? place : NO_MEMORY;
        count(to, what, start);
    }
    return ALL_DONE;
}

/* --- lines ------------------------------------------------------------------------------------ */

/* Copy a field without its escapes; see "COPY", "File Formats", of PostgreSQL. */
static uint8_t *without_escapes(const uint8_t *text, const uint8_t *end, uint8_t *to)
{
    static const char LETTERS[] = "bfnrtv", MEANINGS[] = "\b\f\n\r\t\v";
    while (text < end) {
        if (*text == '\\' && text + 1 < end) {
            const char *known = *++text != '\0' ? strchr(LETTERS, *text) : NULL;
            *to++ = known != NULL ? (uint8_t)MEANINGS[known - LETTERS] : *text;
            text++;
        } else {
            *to++ = *text++;
        }
    }
    return to;
}

/* Find the fields of a line; gives 1, 0 when it has another number of them, -1 without memory. */
static int read_line(const table *of, const uint8_t *line, const uint8_t *end, records *to,
                     field *fields)
{
    if (!GROWN(to->plain, to->plain_room, end - line + 1))
        return -1;
    uint8_t *plain = to->plain;
    for (int32_t i = 0; i < of->width; i++) {
        const uint8_t *tab = end > line ? memchr(line, '\t', (size_t)(end - line)) : NULL;
        const uint8_t *stop = tab != NULL ? tab : end;
        if ((tab == NULL) != (i + 1 == of->width))
            return 0;
        if (stop - line == 2 && line[0] == '\\' && line[1] == 'N') {
            fields[i] = (field){line, 0, 'n'};
        } else if (stop > line && memchr(line, '\\', (size_t)(stop - line)) != NULL) {
            uint8_t *after = without_escapes(line, stop, plain);
            fields[i] = (field){plain, after - plain, 't'};
            plain = after;
        } else {
            fields[i] = (field){line, stop - line, 't'};
        }
        line = tab != NULL ? tab + 1 : end;
    }
    return of->width > 0;
}

int64_t encode_lines(const table *of, const texts *from, int64_t first, uint64_t lsn,
                     uint64_t sequence, int64_t ts_us, records *to)
{
    hmac_key hashing = {{0}, {0}};
    field *fields = to->fields;
    if (!grown((void **)&fields, &to->field_places, of->width, sizeof *fields))
        return NO_MEMORY;
    to->fields = fields;
    prepare(of, &hashing);
    for (int64_t place = first; place < from->count; place++) {
        const uint8_t *line = from->bytes + start_of(from, place);
        int found = read_line(of, line, from->bytes + from->ends[place], to, fields);
        if (found <= 0)
            return found == 0 ? place : NO_MEMORY;
        row at = {.lsn = lsn, .sequence = sequence + (uint64_t)place, .ts_us = ts_us, .letter = 'I'};
        int64_t start = to->size;
        outcome done = add_record(of, fields, &hashing, &at, 'r', to);
        if (done != DONE)
            return done == ODD ? place : NO_MEMORY;
        count(to, READ, start);
    }
    return ALL_DONE;
}
