/* Rows in Avro to columns in Arrow's layouts, for the verifier; called by
 * changelog/native/compiled/intake.py.
 *
 * Stricter than any reader has to be: whatever is not exactly what a writer of the schema makes ends
 * the batch, whose rows the caller then reads one by one by its rule, fastavro. Each row begins
 * with its own frame and has to end where its value does, so that none shifts the next.
 */
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "grow.h"

enum { FRAME_BYTES = 5, DECIMAL_BYTES = 16, MOST_VARINT = 10 };

typedef struct {
    const uint8_t *at, *end;
} span;

/* ---- columns ---- */

static void series_free(series *of)
{
    free(of->is_there);
    free(of->ends);
    free(of->data);
    memset(of, 0, sizeof *of);
}

static int with_bits(uint8_t **bits, int64_t *room, int64_t count)
{
    int64_t before = *room, wanted = count / 8 + 1;
    if (!GROWN(*bits, *room, wanted))
        return 0;
    memset(*bits + before, 0, (size_t)(*room - before));
    return 1;
}

/* Make room for an item more, and for so many bytes of it. */
static int one_more(series *s, int64_t bytes)
{
    if (bytes > INT32_MAX - s->size || s->count >= INT32_MAX - 1)
        return 0;
    if (!with_bits(&s->is_there, &s->bit_room, s->count) || !GROWN(s->ends, s->end_room, s->count + 2))
        return 0;
    if (s->count == 0)
        s->ends[0] = 0;
    return GROWN(s->data, s->data_room, s->size + bytes + 1);
}

static int put(series *s, const void *bytes, int64_t size, int is_there)
{
    if (!one_more(s, size))
        return 0;
    if (bytes != NULL)
        memcpy(s->data + s->size, bytes, (size_t)size);
    else
        memset(s->data + s->size, 0, (size_t)size);
    s->size += size;
    if (is_there)
        s->is_there[s->count / 8] |= (uint8_t)(1 << s->count % 8);
    s->ends[++s->count] = (int32_t)s->size;
    return 1;
}

/* ---- bytes ---- */

static int read_long(span *from, int64_t *to)
{
    uint64_t found = 0;
    for (int n = 0; n < MOST_VARINT && from->at < from->end; n++) {
        uint8_t byte = *from->at++;
        if (n == MOST_VARINT - 1 && byte > 1)
            return 0;
        found |= (uint64_t)(byte & 0x7F) << (7 * n);
        if (byte < 0x80) {
            *to = (int64_t)(found >> 1) ^ -(int64_t)(found & 1);
            return 1;
        }
    }
    return 0;
}

static int read_bytes(span *from, const uint8_t **bytes, int64_t *size)
{
    if (!read_long(from, size) || *size < 0 || *size > from->end - from->at)
        return 0;
    *bytes = from->at;
    from->at += *size;
    return 1;
}

static int is_utf8(const uint8_t *at, int64_t size)
{
    const uint8_t *end = at + size;
    while (at < end) {
        uint8_t lead = *at++;
        if (lead < 0x80)
            continue;
        int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
        if (lead < 0xC2 || lead > 0xF4 || end - at < more)
            return 0;
        uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        if (*at < low || *at > high)
            return 0;
        for (at++; --more > 0; at++)
            if (*at < 0x80 || *at > 0xBF)
                return 0;
    }
    return 1;
}

static int read_text(span *from, series *to)
{
    const uint8_t *bytes;
    int64_t size;
    return read_bytes(from, &bytes, &size) && is_utf8(bytes, size) && put(to, bytes, size, 1);
}

/* An unscaled number, from big-endian to Arrow's. */
static int read_decimal(span *from, series *to)
{
    const uint8_t *bytes;
    uint8_t out[DECIMAL_BYTES];
    int64_t size;
    if (!read_bytes(from, &bytes, &size) || size > DECIMAL_BYTES)
        return 0;
    memset(out, size > 0 && bytes[0] >= 0x80 ? 0xFF : 0, sizeof out);
    for (int64_t n = 0; n < size; n++)
        out[n] = bytes[size - 1 - n];
    return put(to, out, sizeof out, 1);
}

static int read_fixed(span *from, series *to, int64_t size)
{
    if (from->end - from->at < size || !put(to, from->at, size, 1))
        return 0;
    from->at += size;
    return 1;
}

static int64_t width_of(int32_t kind)
{
    switch (kind) {
    case DECODE_BOOLEAN:
        return 1;
    case DECODE_INT:
    case DECODE_FLOAT:
        return 4;
    case DECODE_LONG:
    case DECODE_DOUBLE:
        return 8;
    case DECODE_DECIMAL:
        return DECIMAL_BYTES;
    default:
        return 0;
    }
}

static int read_plain(span *from, int32_t kind, series *to)
{
    int64_t number;
    int32_t small;
    switch (kind) {
    case DECODE_BOOLEAN:
        return from->at < from->end && *from->at <= 1 && read_fixed(from, to, 1);
    case DECODE_INT:
        if (!read_long(from, &number) || number < INT32_MIN || number > INT32_MAX)
            return 0;
        small = (int32_t)number;
        return put(to, &small, sizeof small, 1);
    case DECODE_LONG:
        return read_long(from, &number) && put(to, &number, sizeof number, 1);
    case DECODE_FLOAT:
    case DECODE_DOUBLE:
        return read_fixed(from, to, width_of(kind));
    case DECODE_DECIMAL:
        return read_decimal(from, to);
    case DECODE_STRING:
        return read_text(from, to);
    case DECODE_BYTES: {
        const uint8_t *bytes;
        return read_bytes(from, &bytes, &number) && put(to, bytes, number, 1);
    }
    default:
        return 0;
    }
}

static int read_array(span *from, const decode_field *field, decoded *to)
{
    for (;;) {
        int64_t count, branch, size;
        if (!read_long(from, &count))
            return 0;
        if (count < 0) { /* then its bytes are told too, which nobody needs here */
            if (count == INT64_MIN || !read_long(from, &size))
                return 0;
            count = -count;
        }
        if (count > from->end - from->at)
            return 0;
        if (count == 0)
            break;
        for (; count > 0; count--) {
            if (!read_long(from, &branch) || branch < 0 || branch > 1)
                return 0;
            if (branch == 0 ? !put(&to->items, NULL, width_of(field->element), 0)
                            : !read_plain(from, field->element, &to->items))
                return 0;
        }
    }
    if (!put(&to->own, NULL, 0, 1))
        return 0;
    to->own.ends[to->own.count] = (int32_t)to->items.count;
    return 1;
}

static int put_null(const decode_field *field, decoded *to)
{
    if (!put(&to->own, NULL, width_of(field->kind), 0))
        return 0;
    if (field->kind == DECODE_ARRAY)
        to->own.ends[to->own.count] = (int32_t)to->items.count;
    return 1;
}

static int read_field(span *from, const decode_field *field, decoded *to)
{
    int64_t branch = field->value_branch;
    if (field->is_union && !read_long(from, &branch))
        return 0;
    int has_text = field->text_branch >= 0;
    if (branch == field->value_branch) {
        int is_read = field->kind == DECODE_ARRAY ? read_array(from, field, to)
                                                  : read_plain(from, field->kind, &to->own);
        return is_read && (!has_text || put(&to->text, NULL, 0, 0));
    }
    if (branch < 0 || !put_null(field, to))
        return 0;
    if (branch == field->null_branch)
        return !has_text || put(&to->text, NULL, 0, 0);
    return has_text && branch == field->text_branch && read_text(from, &to->text);
}

int64_t decode_rows(const decode_field *fields, int32_t count, const uint8_t *frame,
                    const uint8_t *bytes, const int32_t *ends, int64_t rows, decoded *to)
{
    for (int64_t row = 0; row < rows; row++) {
        span from = {bytes + ends[row], bytes + ends[row + 1]};
        if (from.end - from.at < FRAME_BYTES || memcmp(from.at, frame, FRAME_BYTES) != 0)
            return row;
        from.at += FRAME_BYTES;
        for (int32_t n = 0; n < count; n++)
            if (!read_field(&from, &fields[n], &to[n]))
                return row;
        if (from.at != from.end)
            return row;
    }
    return rows;
}

void decoded_free(decoded *of)
{
    series_free(&of->own);
    series_free(&of->text);
    series_free(&of->items);
}
