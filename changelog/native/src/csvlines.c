/* Lines of CSV and whole texts to lines of COPY's text, for bulk loads; called by
 * changelog/native/compiled/loads.py.
 *
 * A field is what PostgreSQL's CSV has: an empty one without quotes is a null. What is not plain (a
 * quote in mid-field, another number of fields, digits that would be rounded, two lines) ends the
 * call: its caller reads that record by itself, and says what is wrong with it.
 */
#include "api.h"
#include "copytext.h"

typedef struct {
    const uint8_t *at, *end; /* of what is between the quotes, where there are some */
    int is_null, has_quotes;
} field;

/* Whether eight bytes have none of those that COPY escapes: control characters, a backslash. */
static inline int are_plain(const uint8_t *at)
{
    uint64_t eight = eight_letters(at);
    return (controls_of(eight) | same_of(eight, '\\')) == 0;
}

/* Write a text; of two quotes the first only, where it has quotes. */
static void put_text(sink *to, const uint8_t *at, const uint8_t *end, int has_quotes)
{
    while (at < end) {
        if (!has_quotes && end - at >= 8 && are_plain(at)) {
            put_all(to, at, 8);
            at += 8;
            continue;
        }
        if (has_quotes && *at == '"')
            at++;
        put_letter(to, *at++);
    }
}

/* Find the end of a field between quotes, the first of which has been read; NULL: it has none. */
static const uint8_t *quoted_end(const uint8_t *at, const uint8_t *end, int *has_quotes)
{
    for (; (at = memchr(at, '"', (size_t)(end - at))) != NULL; at += 2) {
        if (end - at < 2 || at[1] != '"')
            return at;
        *has_quotes = 1;
        if (end - at == 2)
            return NULL;
    }
    return NULL;
}

/* Find the fields of a line; 0: it has another number of them, or is not plain. */
static int find(const uint8_t *at, const uint8_t *end, uint8_t delimiter, int32_t count,
                field *found)
{
    for (int32_t n = 0; n < count; n++) {
        field *to = &found[n];
        to->has_quotes = 0;
        if (at < end && *at == '"') {
            to->is_null = 0;
            to->at = at + 1;
            if (to->at == end || (to->end = quoted_end(to->at, end, &to->has_quotes)) == NULL)
                return 0;
            at = to->end + 1;
            if (at < end && *at != delimiter)
                return 0;
        } else {
            for (to->at = at; at < end && *at != delimiter; at++)
                if (*at == '"' || *at == '\n' || *at == '\r')
                    return 0;
            to->end = at;
            to->is_null = to->at == at;
        }
        if (at == end)
            return n == count - 1;
        at++; /* behind the delimiter begins another field, if an empty one */
    }
    return 0;
}

static int put_field(sink *to, const csv_column *column, const field *of)
{
    if (of->is_null) {
        put_null(to);
        return 1;
    }
    if (column->fraction >= 0 &&
        (of->has_quotes || !keeps_digits(of->at, of->end, column->fraction, column->is_moment)))
        return 0;
    put_text(to, of->at, of->end, of->has_quotes);
    return 1;
}

static field whole(const uint8_t *bytes, const int64_t *ends, int64_t at, int is_there)
{
    int64_t size = ends[at + 1] - ends[at];
    const uint8_t *begin = size > 0 ? bytes + ends[at] : (const uint8_t *)"";
    return (field){begin, begin + size, !is_there, 0};
}

static int put_fields(sink *to, const csv_column *columns, int32_t count, const field **found)
{
    for (int32_t n = 0; n < count; n++) {
        if (n > 0)
            put(to, '\t');
        if (!put_field(to, &columns[n], found[n]))
            return 0;
    }
    return 1;
}

int64_t csv_lines(const csv_column *columns, int32_t count, int32_t fields, uint8_t delimiter,
                  int32_t numbered, const batch *of, int64_t base, const int64_t *chosen,
                  int64_t first, int64_t rows, texts *to)
{
    field found[MOST_COLUMNS];
    const field *cells[MOST_COLUMNS];
    int64_t row = first;
    sink out = {to->bytes, start_of(to, to->count), to->room};
    int has_memory = 1;
    if (fields > MOST_COLUMNS || count > MOST_COLUMNS || count < 1)
        return 0;
    for (; row < rows; row++) {
        int64_t before = out.size, at = base + chosen[row], most = NUMBER_MOST;
        field key = whole(of->keys, of->key_ends, at, of->is_there[at] & BATCH_KEY);
        field value = whole(of->values, of->value_ends, at, 1);
        if (fields > 0 && !find(value.at, value.end, delimiter, fields, found))
            break;
        for (int32_t n = 0; n < count; n++) {
            int32_t wanted = columns[n].field;
            cells[n] = wanted == WHOLE_KEY     ? &key
                       : wanted == WHOLE_VALUE ? &value
                                               : &found[wanted];
            most += 2 * (cells[n]->end - cells[n]->at) + 3; /* a byte is at most two */
        }
        has_memory = room(&out, most);
        if (!has_memory)
            break;
        if (!put_fields(&out, columns, count, cells)) {
            out.size = before;
            break;
        }
        end_line(&out, chosen[row], numbered);
    }
    return ended(to, &out, has_memory) ? row - first : NO_MEMORY;
}
