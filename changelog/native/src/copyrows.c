/* Rows in Avro to PostgreSQL's binary COPY, for bulk loads; called by
 * changelog/native/compiled/loads.py.
 *
 * Two passes over a row: the first finds where each field's value lies, the second writes the cells
 * in the order of the columns. What is not exactly what the schema says, and what has no form here,
 * ends the call: its caller then goes by fastavro and COPY's text. Whether texts are UTF-8 the
 * server sees to.
 */
#include <string.h>

#include "api.h"
#include "sink.h"
#include "texts.h"

enum { FRAME = 5, VARINT_MOST = 10, DECIMAL_MOST = 16, MOST_CELLS = 1664, UUID_TEXT = 36 };
enum { NUMERIC_MOST = 8 + 2 * 24, BASE = 10000, NOT_A_NUMBER = 0xC000, NEGATIVE = 0x4000 };

static const int64_t EPOCH_DAYS = 10957, EPOCH_MICROS = 946684800000000;

/* ---- Avro ---- */

static inline int varint(span *from, int64_t *to)
{
    uint64_t found = 0;
    for (int n = 0; n < VARINT_MOST && from->at < from->end; n++) {
        uint8_t byte = *from->at++;
        if (n == VARINT_MOST - 1 && byte > 1)
            return 0;
        found |= (uint64_t)(byte & 0x7F) << (7 * n);
        if (byte < 0x80) {
            *to = (int64_t)(found >> 1) ^ -(int64_t)(found & 1);
            return 1;
        }
    }
    return 0;
}

static inline int fixed(span *from, int64_t size)
{
    if (from->end - from->at < size)
        return 0;
    from->at += size;
    return 1;
}

/* Read the length of bytes, which have to be there. */
static inline int length(span *from, int64_t *size)
{
    return varint(from, size) && *size >= 0 && *size <= from->end - from->at;
}

static int skip(span *from, int32_t kind, int32_t element);

static int skip_array(span *from, int32_t element)
{
    for (;;) {
        int64_t count, branch, size;
        if (!varint(from, &count))
            return 0;
        if (count < 0) {
            if (count == INT64_MIN || !varint(from, &size))
                return 0;
            count = -count;
        }
        if (count == 0)
            return 1;
        if (count > from->end - from->at)
            return 0;
        for (; count > 0; count--)
            if (!varint(from, &branch) || branch < 0 || branch > 1 ||
                (branch == 1 && !skip(from, element, 0)))
                return 0;
    }
}

static int skip(span *from, int32_t kind, int32_t element)
{
    int64_t number;
    switch (kind) {
    case AVRO_BOOLEAN:
        return from->at < from->end && *from->at <= 1 && fixed(from, 1);
    case AVRO_INT:
    case AVRO_LONG:
        return varint(from, &number);
    case AVRO_FLOAT:
        return fixed(from, 4);
    case AVRO_DOUBLE:
        return fixed(from, 8);
    case AVRO_ARRAY:
        return skip_array(from, element);
    default:
        return length(from, &number) && fixed(from, number);
    }
}

/* ---- COPY ---- */

static inline void put16(sink *to, uint16_t number)
{
    to->bytes[to->size++] = (uint8_t)(number >> 8);
    to->bytes[to->size++] = (uint8_t)number;
}

static inline void put32(sink *to, uint32_t number)
{
    put16(to, (uint16_t)(number >> 16));
    put16(to, (uint16_t)number);
}

static inline void put64(sink *to, uint64_t number)
{
    put32(to, (uint32_t)(number >> 32));
    put32(to, (uint32_t)number);
}

static int put_numeric(sink *to, span *from, int32_t scale)
{
    int64_t size;
    if (!length(from, &size) || size > DECIMAL_MOST)
        return 0;
    unsigned __int128 number = size > 0 && from->at[0] >= 0x80 ? ~(unsigned __int128)0 : 0;
    for (int64_t n = 0; n < size; n++)
        number = number << 8 | from->at[n];
    from->at += size;
    int negative = size > 0 && number >> 127;
    if (negative)
        number = -number;
    uint16_t digits[NUMERIC_MOST];
    int count = 0, fraction = (scale + 3) / 4, odd = scale % 4;
    static const uint16_t TENS[] = {1, 10, 100, 1000};
    if (odd) { /* the last group of the fraction is filled up */
        digits[count++] = (uint16_t)((uint64_t)(number % TENS[odd]) * TENS[4 - odd]);
        number /= TENS[odd];
    }
    while (number >> 64) {
        digits[count++] = (uint16_t)(number % BASE);
        number /= BASE;
    }
    for (uint64_t left = (uint64_t)number; left || count < fraction; left /= BASE)
        digits[count++] = (uint16_t)(left % BASE);
    put32(to, (uint32_t)(8 + 2 * count));
    put16(to, (uint16_t)count);
    put16(to, (uint16_t)(count - fraction - 1));
    put16(to, negative ? NEGATIVE : 0);
    put16(to, (uint16_t)scale);
    while (count > 0)
        put16(to, digits[--count]);
    return 1;
}

static void put_nan(sink *to)
{
    put32(to, 8);
    put32(to, 0);
    put16(to, NOT_A_NUMBER);
    put16(to, 0);
}

static int hex_digit(uint8_t letter)
{
    if (letter >= '0' && letter <= '9')
        return letter - '0';
    letter |= 0x20;
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

static int put_uuid(sink *to, const uint8_t *text, int64_t size)
{
    if (size != UUID_TEXT)
        return 0;
    put32(to, 16);
    for (int n = 0; n < UUID_TEXT; n += 2) {
        if (n == 8 || n == 13 || n == 18 || n == 23)
            if (text[n++] != '-')
                return 0;
        int high = hex_digit(text[n]), low = hex_digit(text[n + 1]);
        if (high < 0 || low < 0)
            return 0;
        to->bytes[to->size++] = (uint8_t)(high << 4 | low);
    }
    return 1;
}

/* Write a number as a cell; 0 where it has none there. */
static int put_number(sink *to, int32_t form, int64_t number)
{
    switch (form) {
    case CELL_INT2:
        if (number < INT16_MIN || number > INT16_MAX)
            return 0;
        put32(to, 2);
        put16(to, (uint16_t)number);
        return 1;
    case CELL_INT4:
        if (number < INT32_MIN || number > INT32_MAX)
            return 0;
        put32(to, 4);
        put32(to, (uint32_t)number);
        return 1;
    case CELL_INT8:
        put32(to, 8);
        put64(to, (uint64_t)number);
        return 1;
    case CELL_BOOL:
        put32(to, 1);
        to->bytes[to->size++] = number != 0;
        return 1;
    case CELL_DATE:
        if (number < INT32_MIN || number > INT32_MAX)
            return 0;
        if (number != INT32_MIN && number != INT32_MAX) {
            number -= EPOCH_DAYS;
            if (number <= INT32_MIN)
                return 0;
        }
        put32(to, 4);
        put32(to, (uint32_t)number);
        return 1;
    case CELL_MILLIS:
        if (__builtin_mul_overflow(number, (int64_t)1000, &number))
            return 0;
        /* fall through */
    case CELL_MICROS:
        if (number != INT64_MIN && number != INT64_MAX) {
            if (number <= INT64_MIN + EPOCH_MICROS)
                return 0;
            number -= EPOCH_MICROS;
        }
        put32(to, 8);
        put64(to, (uint64_t)number);
        return 1;
    default:
        return 0;
    }
}

static int put_bytes(sink *to, span *from, int32_t form)
{
    int64_t size;
    if (!length(from, &size) || size >= INT32_MAX || !room(to, size + 32))
        return 0;
    const uint8_t *bytes = from->at;
    from->at += size;
    if (form == CELL_UUID)
        return put_uuid(to, bytes, size);
    put32(to, (uint32_t)size + (form == CELL_JSONB));
    if (form == CELL_JSONB)
        to->bytes[to->size++] = 1;
    memcpy(to->bytes + to->size, bytes, (size_t)size);
    to->size += size;
    return 1;
}

static int put_float(sink *to, span *from, int32_t size)
{
    if (from->end - from->at < size)
        return 0;
    put32(to, (uint32_t)size);
    for (int n = size - 1; n >= 0; n--)
        to->bytes[to->size++] = from->at[n];
    from->at += size;
    return 1;
}

static int put_plain(sink *to, span *from, int32_t kind, int32_t form, int32_t scale)
{
    int64_t number;
    if (!room(to, 4 + NUMERIC_MOST))
        return 0;
    switch (kind) {
    case AVRO_BOOLEAN:
        if (from->at >= from->end || *from->at > 1)
            return 0;
        return put_number(to, form, *from->at++);
    case AVRO_INT:
        return varint(from, &number) && number >= INT32_MIN && number <= INT32_MAX &&
               put_number(to, form, number);
    case AVRO_LONG:
        return varint(from, &number) && put_number(to, form, number);
    case AVRO_FLOAT:
        return put_float(to, from, 4);
    case AVRO_DOUBLE:
        return put_float(to, from, 8);
    case AVRO_DECIMAL:
        return put_numeric(to, from, scale);
    default:
        return put_bytes(to, from, form);
    }
}

static void patch32(sink *to, int64_t place, uint32_t number)
{
    int64_t size = to->size;
    to->size = place;
    put32(to, number);
    to->size = size;
}

static int put_array(sink *to, span *from, const avro_field *field, const copy_cell *cell)
{
    int64_t begin = to->size, items = 0, has_null = 0;
    if (!room(to, 24))
        return 0;
    to->size += 24; /* length, dimensions, nulls, type, number, lower bound */
    for (;;) {
        int64_t count, branch, size;
        if (!varint(from, &count))
            return 0;
        if (count < 0) {
            if (!varint(from, &size))
                return 0;
            count = -count;
        }
        if (count == 0)
            break;
        items += count;
        for (; count > 0; count--) {
            if (!varint(from, &branch) || !room(to, 4))
                return 0;
            if (branch == 0) {
                has_null = 1;
                put32(to, UINT32_MAX);
            } else if (!put_plain(to, from, field->element, cell->element, cell->scale)) {
                return 0;
            }
        }
    }
    if (items == 0)
        to->size = begin + 16;
    if (to->size - begin - 4 > INT32_MAX)
        return 0;
    patch32(to, begin, (uint32_t)(to->size - begin - 4));
    patch32(to, begin + 4, items > 0);
    patch32(to, begin + 8, (uint32_t)has_null);
    patch32(to, begin + 12, (uint32_t)cell->oid);
    if (items > 0) {
        patch32(to, begin + 16, (uint32_t)items);
        patch32(to, begin + 20, 1);
    }
    return 1;
}

/* ---- rows ---- */

typedef struct {
    const avro_field *field; /* NULL: nothing fills it */
    span at;
    uint8_t is_there, is_nan;
} found;

/* Whether the escape of a decimal is the one that has a form. */
static int is_nan(span *from)
{
    int64_t size;
    if (!length(from, &size) || size != 3 || memcmp(from->at, "NaN", 3) != 0)
        return 0;
    from->at += size;
    return 1;
}

/* Find the values of a row's fields. */
static int find(const avro_rows *of, int64_t row, found *cells)
{
    span from = {of->bytes + of->ends[row], of->bytes + of->ends[row + 1]};
    if (from.end - from.at < FRAME || memcmp(from.at, of->frame, FRAME) != 0)
        return 0;
    from.at += FRAME;
    for (int32_t n = 0; n < of->count; n++) {
        const avro_field *field = &of->fields[n];
        found none, *cell = field->cell >= 0 ? &cells[field->cell] : &none;
        int64_t branch = field->value_branch;
        if (field->is_union && !varint(&from, &branch))
            return 0;
        cell->field = field;
        cell->at = from;
        cell->is_there = branch == field->value_branch;
        cell->is_nan = 0;
        if (cell->is_there) {
            if (!skip(&from, field->kind, field->element))
                return 0;
        } else if (branch < 0) {
            return 0;
        } else if (branch != field->null_branch) {
            if (branch != field->text_branch || field->kind != AVRO_DECIMAL || !is_nan(&from))
                return 0;
            cell->is_nan = 1;
        }
    }
    return from.at == from.end;
}

static int put_cell(sink *to, const copy_cell *cell, found *of, int64_t row)
{
    if (!room(to, 4 + NUMERIC_MOST))
        return 0;
    if (of->field == NULL) {
        if (cell->numbers != NULL)
            return put_number(to, cell->form, cell->numbers[row]);
        put32(to, UINT32_MAX);
        return 1;
    }
    if (of->is_nan) {
        put_nan(to);
        return 1;
    }
    if (!of->is_there) {
        put32(to, UINT32_MAX);
        return 1;
    }
    if (of->field->kind == AVRO_ARRAY)
        return put_array(to, &of->at, of->field, cell);
    return put_plain(to, &of->at, of->field->kind, cell->form, cell->scale);
}

int64_t copy_rows(const avro_rows *values, const avro_rows *keys, const copy_cell *cells,
                  int32_t count, const int64_t *chosen, int64_t rows, texts *to)
{
    found places[MOST_CELLS];
    int64_t begin = start_of(to, to->count), row = 0;
    sink out = {to->bytes, begin, to->room};
    if (count > MOST_CELLS)
        return 0;
    memset(places, 0, sizeof *places * (size_t)count);
    for (; row < rows; row++) {
        int64_t before = out.size, at = chosen == NULL ? row : chosen[row];
        int is_found = (values == NULL || find(values, at, places)) &&
                       (keys == NULL || find(keys, at, places)) && room(&out, 2);
        if (!is_found)
            break;
        put16(&out, (uint16_t)count);
        int32_t cell = 0;
        while (cell < count && put_cell(&out, &cells[cell], &places[cell], at))
            cell++;
        if (cell < count) {
            out.size = before;
            break;
        }
    }
    to->bytes = out.bytes;
    to->room = out.room;
    if (!GROWN(to->ends, to->places, to->count + 1))
        return NO_MEMORY;
    to->ends[to->count++] = out.size;
    return row;
}
