/* Objects of JSON to lines of COPY's text, for bulk loads; called by
 * changelog/native/compiled/loads.py.
 *
 * Two passes over an object: the first finds where each column's value lies and that all of it is
 * JSON, the second writes the cells in the order of the columns. What is not plain (a name twice or
 * with escapes, half of a surrogate pair, a value of a sort that its column does not take, digits
 * that would be rounded, deep nesting) ends the call: its caller reads that object by itself, and
 * says what is wrong with it. A number stays the text that it is (RFC 8259, section 6).
 */
#include <string.h>

#include "api.h"
#include "copytext.h"
#include "texts.h"

enum { MOST_NAMES = 64, MOST_DEPTH = 16 };

/* Of a text: whether it has escapes, and whether some of them would be written in another way. */
enum { PLAIN = 0, ESCAPED = 1, ESCAPED_OTHERWISE = 2 };

typedef enum { ABSENT, NOTHING, TRUTH, FALSEHOOD, TEXT, NUMBER, NESTED } sort;

typedef struct {
    const uint8_t *at, *end; /* of a text without its quotes */
    sort sort;
    int escapes;
} value;

/* ---- texts ---- */

/* How many bytes the character of several bytes has; 0: it is none (RFC 3629, section 4). */
static int character(const uint8_t *at, const uint8_t *end)
{
    uint8_t head = at[0];
    int size = head >= 0xF0 ? 4 : head >= 0xE0 ? 3 : 2;
    if (head < 0xC2 || head > 0xF4 || end - at < size)
        return 0;
    for (int n = 1; n < size; n++)
        if ((at[n] & 0xC0) != 0x80)
            return 0;
    if ((head == 0xE0 && at[1] < 0xA0) || (head == 0xED && at[1] >= 0xA0) ||
        (head == 0xF0 && at[1] < 0x90) || (head == 0xF4 && at[1] >= 0x90))
        return 0;
    return size;
}

/* Whether eight bytes are all letters that need no look: no quote, backslash or control
 * character, and of ASCII. */
static inline int are_plain(const uint8_t *at)
{
    uint64_t eight = eight_letters(at), others = eight & TOPS;
    return (controls_of(eight) | same_of(eight, '"') | same_of(eight, '\\') | others) == 0;
}

/* Find the end of a text, whose opening quote has been read; NULL: it has none here. */
static const uint8_t *text_end(const uint8_t *at, const uint8_t *end, int *escapes)
{
    *escapes = PLAIN;
    while (at < end) {
        if (end - at >= 8 && are_plain(at)) {
            at += 8;
            continue;
        }
        uint8_t letter = *at;
        if (letter == '"')
            return at;
        if (letter < 0x20)
            return NULL;
        if (letter == '\\') {
            if (end - at < 2)
                return NULL;
            if (memchr("\"\\bfnrt", at[1], 7) != NULL)
                *escapes |= ESCAPED;
            else if (at[1] == '/' || at[1] == 'u')
                *escapes |= ESCAPED | ESCAPED_OTHERWISE;
            else
                return NULL;
            at += 2;
        } else if (letter < 0x80) {
            at++;
        } else {
            int size = character(at, end);
            if (size == 0)
                return NULL;
            at += size;
        }
    }
    return NULL;
}

static int four_digits(const uint8_t *at, const uint8_t *end, uint32_t *to)
{
    if (end - at < 4)
        return 0;
    *to = 0;
    for (int n = 0; n < 4; n++) {
        uint8_t letter = at[n], low = letter | 0x20;
        int digit = letter >= '0' && letter <= '9' ? letter - '0'
                    : low >= 'a' && low <= 'f'     ? low - 'a' + 10
                                                   : -1;
        if (digit < 0)
            return 0;
        *to = *to << 4 | (uint32_t)digit;
    }
    return 1;
}

/* Write a character as COPY's text has it. */
static void put_character(sink *to, uint32_t point)
{
    if (point < 0x80) {
        put_letter(to, point);
    } else if (point < 0x800) {
        put(to, 0xC0 | point >> 6);
        put(to, 0x80 | (point & 0x3F));
    } else {
        if (point < 0x10000) {
            put(to, 0xE0 | point >> 12);
        } else {
            put(to, 0xF0 | point >> 18);
            put(to, 0x80 | (point >> 12 & 0x3F));
        }
        put(to, 0x80 | (point >> 6 & 0x3F));
        put(to, 0x80 | (point & 0x3F));
    }
}

/* Write what a text with escapes says; 0 where that has no form. */
static int put_said(sink *to, const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        if (*at != '\\') {
            put(to, *at++);
            continue;
        }
        uint8_t letter = at[1];
        at += 2;
        uint32_t point = letter == 'n'   ? '\n'
                         : letter == 'r' ? '\r'
                         : letter == 't' ? '\t'
                         : letter == 'b' ? '\b'
                         : letter == 'f' ? '\f'
                                         : letter;
        if (letter == 'u') {
            uint32_t low;
            if (!four_digits(at, end, &point) || point == 0)
                return 0;
            at += 4;
            if (point >= 0xDC00 && point < 0xE000)
                return 0;
            if (point >= 0xD800 && point < 0xDC00) {
                if (end - at < 6 || at[0] != '\\' || at[1] != 'u' ||
                    !four_digits(at + 2, end, &low) || low < 0xDC00 || low >= 0xE000)
                    return 0;
                at += 6;
                point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
            }
        }
        put_character(to, point);
    }
    return 1;
}

/* ---- values ---- */

static inline const uint8_t *behind_blanks(const uint8_t *at, const uint8_t *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r'))
        at++;
    return at;
}

/* Find the end of a number; NULL: it is none, or has another text when it is written. */
static const uint8_t *number_end(const uint8_t *at, const uint8_t *end)
{
    const uint8_t *begin = at, *whole;
    if (*at == '-')
        at++;
    whole = at;
    at = digits_end(at, end);
    if (at == whole || (*whole == '0' && at - whole > 1))
        return NULL;
    const uint8_t *behind_whole = at;
    if (at < end && *at == '.') {
        const uint8_t *fraction = ++at;
        at = digits_end(at, end);
        if (at == fraction)
            return NULL;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < end && (*at == '+' || *at == '-'))
            at++;
        const uint8_t *exponent = at;
        at = digits_end(at, end);
        if (at == exponent)
            return NULL;
    }
    int is_negative_zero = at == behind_whole && *begin == '-' && *whole == '0';
    return is_negative_zero ? NULL : at;
}

static const uint8_t *word_end(const uint8_t *at, const uint8_t *end, const char *word)
{
    int64_t size = (int64_t)strlen(word);
    return end - at >= size && memcmp(at, word, (size_t)size) == 0 ? at + size : NULL;
}

static int is_among(const span *names, int count, const uint8_t *at, const uint8_t *end)
{
    for (int n = 0; n < count; n++)
        if (names[n].end - names[n].at == end - at &&
            memcmp(names[n].at, at, (size_t)(end - at)) == 0)
            return 1;
    return 0;
}

/* Read an object or a list inside of another, and write it without blanks where `to` is not NULL.
 * Gives the place behind it, or NULL. */
static const uint8_t *nested(const uint8_t *at, const uint8_t *end, sink *to, int depth)
{
    int escapes;
    const uint8_t *begin = at;
    switch (*at) {
    case '"':
        at = text_end(at + 1, end, &escapes);
        if (at == NULL || escapes & ESCAPED_OTHERWISE)
            return NULL;
        at++;
        break;
    case 't':
        at = word_end(at, end, "true");
        break;
    case 'f':
        at = word_end(at, end, "false");
        break;
    case 'n':
        at = word_end(at, end, "null");
        break;
    case '{':
    case '[': {
        uint8_t close = *at == '{' ? '}' : ']';
        span names[MOST_NAMES];
        int count = 0;
        if (depth == 0)
            return NULL;
        if (to != NULL)
            put(to, *at);
        at = behind_blanks(at + 1, end);
        if (at < end && *at == close) {
            if (to != NULL)
                put(to, close);
            return at + 1;
        }
        for (;; count++) {
            if (close == '}') {
                if (at >= end || *at != '"')
                    return NULL;
                const uint8_t *name = at + 1;
                at = text_end(name, end, &escapes);
                if (at == NULL || escapes || count == MOST_NAMES ||
                    is_among(names, count, name, at))
                    return NULL;
                names[count] = (span){name, at};
                at = behind_blanks(at + 1, end);
                if (at >= end || *at != ':')
                    return NULL;
                if (to != NULL) {
                    put_all(to, name - 1, names[count].end - name + 2);
                    put(to, ':');
                }
                at = behind_blanks(at + 1, end);
            }
            if (at >= end || (at = nested(at, end, to, depth - 1)) == NULL)
                return NULL;
            at = behind_blanks(at, end);
            if (at >= end || (*at != ',' && *at != close))
                return NULL;
            if (to != NULL)
                put(to, *at);
            if (*at == close)
                return at + 1;
            at = behind_blanks(at + 1, end);
        }
    }
    default:
        at = number_end(at, end);
    }
    if (at == NULL || to == NULL)
        return at;
    for (; begin < at; begin++) {
        if (*begin == '\\') /* of an escape of JSON's, which COPY is to leave there */
            put(to, '\\');
        put(to, *begin);
    }
    return at;
}

/* Find a value and its end; NULL: it has none here. */
static const uint8_t *value_end(const uint8_t *at, const uint8_t *end, value *found)
{
    found->escapes = PLAIN;
    found->at = at;
    switch (*at) {
    case '"':
        found->sort = TEXT;
        found->at = at + 1;
        found->end = text_end(at + 1, end, &found->escapes);
        return found->end == NULL ? NULL : found->end + 1;
    case 't':
        found->sort = TRUTH;
        return found->end = word_end(at, end, "true");
    case 'f':
        found->sort = FALSEHOOD;
        return found->end = word_end(at, end, "false");
    case 'n':
        found->sort = NOTHING;
        return found->end = word_end(at, end, "null");
    case '{':
    case '[':
        found->sort = NESTED;
        return found->end = nested(at, end, NULL, MOST_DEPTH);
    default:
        found->sort = NUMBER;
        return found->end = number_end(at, end);
    }
}

/* ---- lines ---- */

typedef struct {
    const json_column *columns;
    int32_t count, all_known;
} shape;

static int32_t column_of(const shape *of, int32_t likely, const uint8_t *at, const uint8_t *end)
{
    for (int32_t n = 0; n < of->count; n++, likely++) {
        if (likely >= of->count)
            likely = 0;
        const json_column *column = &of->columns[likely];
        if (column->size == end - at && memcmp(column->name, at, (size_t)column->size) == 0)
            return likely;
    }
    return -1;
}

/* Find the values of an object's members. */
static int find(const shape *of, const uint8_t *at, const uint8_t *end, value *found)
{
    span others[MOST_NAMES];
    int unknown = 0, escapes;
    int32_t likely = 0;
    for (int32_t n = 0; n < of->count; n++)
        found[n].sort = ABSENT;
    at = behind_blanks(at, end);
    if (at >= end || *at != '{')
        return 0;
    at = behind_blanks(at + 1, end);
    if (at < end && *at == '}')
        return behind_blanks(at + 1, end) == end;
    for (;;) {
        value none, *to = &none;
        if (at >= end || *at != '"')
            return 0;
        const uint8_t *name = at + 1;
        at = text_end(name, end, &escapes);
        if (at == NULL || escapes)
            return 0;
        int32_t place = column_of(of, likely, name, at);
        if (place >= 0) {
            likely = place + 1;
            to = &found[place];
            if (to->sort != ABSENT)
                return 0;
        } else {
            if (of->all_known || unknown == MOST_NAMES || is_among(others, unknown, name, at))
                return 0;
            others[unknown++] = (span){name, at};
        }
        at = behind_blanks(at + 1, end);
        if (at >= end || *at != ':')
            return 0;
        at = behind_blanks(at + 1, end);
        if (at >= end || (at = value_end(at, end, to)) == NULL)
            return 0;
        /* What nobody takes is read all the same, and has to be JSON to the last letter. */
        if (to == &none && none.escapes & ESCAPED_OTHERWISE)
            return 0;
        at = behind_blanks(at, end);
        if (at >= end)
            return 0;
        if (*at == '}')
            return behind_blanks(at + 1, end) == end;
        if (*at != ',')
            return 0;
        at = behind_blanks(at + 1, end);
    }
}

static int put_cell(sink *to, const json_column *column, const value *of)
{
    static const int TAKES[] = {0,          0,            TAKES_TRUTH,  TAKES_TRUTH,
                                TAKES_TEXT, TAKES_NUMBER, TAKES_NESTED};
    if (of->sort == ABSENT || of->sort == NOTHING) {
        put_null(to);
        return 1;
    }
    if (!(column->takes & TAKES[of->sort]))
        return 0;
    if (of->sort == NESTED)
        return nested(of->at, of->end, to, MOST_DEPTH) != NULL;
    if (column->fraction >= 0 &&
        (of->escapes || !keeps_digits(of->at, of->end, column->fraction, column->is_moment)))
        return 0;
    if (of->escapes)
        return put_said(to, of->at, of->end);
    put_all(to, of->at, of->end - of->at);
    return 1;
}

static int put_line(sink *to, const shape *of, const value *found, int64_t number, int numbered)
{
    for (int32_t n = 0; n < of->count; n++) {
        if (n > 0)
            put(to, '\t');
        if (!put_cell(to, &of->columns[n], &found[n]))
            return 0;
    }
    end_line(to, number, numbered);
    return 1;
}

int64_t json_lines(const json_column *columns, int32_t count, int32_t all_known, int32_t numbered,
                   const uint8_t *bytes, const int64_t *ends, const int64_t *chosen, int64_t first,
                   int64_t rows, texts *to)
{
    value found[MOST_COLUMNS];
    shape of = {columns, count, all_known};
    int64_t begin = start_of(to, to->count), row = first;
    sink out = {to->bytes, begin, to->room};
    int has_memory = 1;
    if (count > MOST_COLUMNS || count < 1)
        return 0;
    for (; row < rows; row++) {
        int64_t before = out.size, at = chosen[row], size = ends[at + 1] - ends[at];
        /* A cell has at most twice as many bytes as its value: of an escape, or of a backslash. */
        has_memory = room(&out, 2 * size + 4 * (int64_t)count + NUMBER_MOST);
        if (!has_memory || !find(&of, bytes + ends[at], bytes + ends[at] + size, found))
            break;
        if (!put_line(&out, &of, found, at, numbered)) {
            out.size = before;
            break;
        }
    }
    return ended(to, &out, has_memory) ? row - first : NO_MEMORY;
}
