/* PostgreSQL's text to Avro's bytes; the rules are those of
 * changelog/contract/rows/text.py.
 *
 * What is not in the form that PostgreSQL writes is ODD and left to that law, which says what is
 * wrong with it: nothing is guessed here, and nothing refused.
 */
#include "avro.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "grow.h"

__extension__ typedef __int128 wide;
__extension__ typedef unsigned __int128 wide_unsigned;

enum { LONG_BYTES = 10, MOST_DIGITS = 38, NUMBER_ROOM = 64 };
static const int64_t DAY_US = 86400000000;

static int room(records *to, int64_t size)
{
    return GROWN(to->bytes, to->room, to->size + size);
}

static outcome put(records *to, const void *bytes, int64_t size)
{
    if (!room(to, size))
        return FAILED;
    if (size > 0)
        memcpy(to->bytes + to->size, bytes, (size_t)size);
    to->size += size;
    return DONE;
}

static outcome put_byte(records *to, uint8_t byte)
{
    if (!room(to, 1))
        return FAILED;
    to->bytes[to->size++] = byte;
    return DONE;
}

/* Avro's int and long: zig-zag, seven bits in each byte. */
static outcome put_long(records *to, int64_t value)
{
    if (!room(to, LONG_BYTES))
        return FAILED;
    uint64_t left = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
    uint8_t *at = to->bytes + to->size;
    while (left > 0x7F) {
        *at++ = (uint8_t)(left | 0x80);
        left >>= 7;
    }
    *at++ = (uint8_t)left;
    to->size = at - to->bytes;
    return DONE;
}

static outcome put_string(records *to, const uint8_t *text, int64_t size)
{
    outcome done = put_long(to, size);
    return done == DONE ? put(to, text, size) : done;
}

static int is(const uint8_t *text, int64_t size, const char *word)
{
    return size == (int64_t)strlen(word) && memcmp(text, word, (size_t)size) == 0;
}

static int is_digit(uint8_t letter)
{
    return letter >= '0' && letter <= '9';
}

static outcome boolean(const uint8_t *text, int64_t size, records *to)
{
    if (size != 1 || (*text != 't' && *text != 'f'))
        return ODD;
    return put_byte(to, *text == 't');
}

static outcome integer(const uint8_t *text, int64_t size, records *to)
{
    int64_t at = size > 0 && text[0] == '-', sign = at;
    uint64_t value = 0, limit = (uint64_t)INT64_MAX + (uint64_t)sign;
    if (at == size)
        return ODD;
    for (; at < size; at++) {
        uint64_t digit = (uint64_t)text[at] - '0';
        if (digit > 9 || value > (limit - digit) / 10)
            return ODD;
        value = value * 10 + digit;
    }
    return put_long(to, sign ? (int64_t)(0 - value) : (int64_t)value);
}

/* Whether a text is what PostgreSQL writes for a finite number; strtod takes more than that. */
static int is_number(const uint8_t *text, int64_t size)
{
    int64_t at = size > 0 && text[0] == '-', digits = 0;
    for (; at < size && is_digit(text[at]); at++)
        digits++;
    if (digits > 0 && at < size && text[at] == '.')
        for (at++, digits = 0; at < size && is_digit(text[at]); at++)
            digits++;
    if (digits > 0 && at < size && text[at] == 'e') {
        at++;
        at += at < size && (text[at] == '-' || text[at] == '+');
        for (digits = 0; at < size && is_digit(text[at]); at++)
            digits++;
    }
    return digits > 0 && at == size;
}

static outcome put_little_endian(records *to, uint64_t bits, int count)
{
    uint8_t bytes[8];
    for (int i = 0; i < count; i++)
        bytes[i] = (uint8_t)(bits >> 8 * i);
    return put(to, bytes, count);
}

/* strtod and strtof round once, to the nearest. */
static outcome floating(const uint8_t *text, int64_t size, int is_double, records *to)
{
    char copy[NUMBER_ROOM], *end;
    double value;
    float single;
    if (is(text, size, "NaN")) {
        return is_double ? put_little_endian(to, 0x7FF8000000000000, 8)
                         : put_little_endian(to, 0x7FC00000, 4);
    } else if (is(text, size, "Infinity") || is(text, size, "-Infinity")) {
        value = single = text[0] == '-' ? -INFINITY : INFINITY;
    } else {
        if (size >= NUMBER_ROOM || !is_number(text, size))
            return ODD;
        memcpy(copy, text, (size_t)size);
        copy[size] = '\0';
        value = is_double ? strtod(copy, &end) : 0;
        single = is_double ? 0 : strtof(copy, &end);
        /* Where the process has another decimal point, they end before ours. */
        if (*end != '\0' || isinf(value) || isinf(single))
            return ODD;
    }
    uint64_t bits = 0;
    uint32_t half = 0;
    memcpy(&bits, &value, sizeof value);
    memcpy(&half, &single, sizeof single);
    return is_double ? put_little_endian(to, bits, 8) : put_little_endian(to, half, 4);
}

/* The unscaled number in two's complement, shortest. */
static outcome decimal(const uint8_t *text, int64_t size, int32_t scale, records *to)
{
    int64_t at = size > 0 && text[0] == '-';
    int negative = (int)at, digits = 0, point = 0;
    int32_t fraction = 0, seen = 0;
    wide_unsigned value = 0;
    for (; at < size; at++) {
        if (text[at] == '.' && !point && seen > 0) {
            point = 1;
            continue;
        }
        if (!is_digit(text[at]))
            return ODD;
        seen = 1;
        fraction += point;
        digits += digits > 0 || text[at] != '0';
        if (digits > MOST_DIGITS || fraction > scale)
            return ODD;
        value = value * 10 + (uint64_t)(text[at] - '0');
    }
    if (!seen || (point && fraction == 0))
        return ODD;
    for (; fraction < scale && value != 0; fraction++) {
        if (++digits > MOST_DIGITS)
            return ODD;
        value *= 10;
    }
    wide number = negative ? -(wide)value : (wide)value;
    uint8_t bytes[sizeof number];
    int length = 1; /* of the last bytes of the number: the others are its sign */
    for (wide left = number; left > 127 || left < -128; left >>= 8)
        length++;
    for (int i = 0; i < length; i++)
        bytes[i] = (uint8_t)(number >> 8 * (length - 1 - i));
    return put_string(to, bytes, length);
}

static int value_of(uint8_t letter)
{
    if (is_digit(letter))
        return letter - '0';
    letter |= 0x20;
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

static outcome bytea(const uint8_t *text, int64_t size, records *to)
{
    if (size < 2 || text[0] != '\\' || text[1] != 'x' || size % 2 != 0)
        return ODD;
    int64_t count = size / 2 - 1;
    if (put_long(to, count) == FAILED || !room(to, count))
        return FAILED;
    for (int64_t i = 0; i < count; i++) {
        int high = value_of(text[2 + 2 * i]), low = value_of(text[3 + 2 * i]);
        if (high < 0 || low < 0)
            return ODD;
        to->bytes[to->size++] = (uint8_t)(high << 4 | low);
    }
    return DONE;
}

/* Two digits, or -1. */
static int two(const uint8_t *text)
{
    return is_digit(text[0]) && is_digit(text[1]) ? (text[0] - '0') * 10 + text[1] - '0' : -1;
}

static int days_in(int64_t year, int month)
{
    static const int DAYS[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return DAYS[month - 1] + (month == 2 && is_leap);
}

/* Days since 1970 of YYYY-MM-DD, with more digits from the year 10000 on; 0 when it is odd. */
static int days_of(const uint8_t *text, int64_t size, int before_christ, int64_t *days)
{
    int64_t digits = size - 6, year = 0;
    if (digits < 4 || digits > 7 || text[digits] != '-' || text[digits + 3] != '-')
        return 0;
    for (int64_t i = 0; i < digits; i++) {
        if (!is_digit(text[i]))
            return 0;
        year = year * 10 + text[i] - '0';
    }
    if (year == 0 || (digits > 4 && text[0] == '0'))
        return 0;
    if (before_christ)
        year = 1 - year;
    int month = two(text + digits + 1), day = two(text + digits + 4);
    if (month < 1 || month > 12 || day < 1 || day > days_in(year, month))
        return 0;
    /* The proleptic Gregorian calendar in eras of 400 years that begin on 1 March. */
    year -= month <= 2;
    int64_t era = (year >= 0 ? year : year - 399) / 400, of_era = year - era * 400;
    int64_t day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    *days = era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719468;
    return 1;
}

static int cut_suffix(const uint8_t *text, int64_t *size, const char *suffix)
{
    int64_t length = (int64_t)strlen(suffix);
    if (*size < length || memcmp(text + *size - length, suffix, (size_t)length) != 0)
        return 0;
    *size -= length;
    return 1;
}

static outcome date(const uint8_t *text, int64_t size, records *to)
{
    if (is(text, size, "infinity"))
        return put_long(to, INT32_MAX);
    if (is(text, size, "-infinity"))
        return put_long(to, INT32_MIN);
    int64_t days;
    int before_christ = cut_suffix(text, &size, " BC");
    return days_of(text, size, before_christ, &days) ? put_long(to, days) : ODD;
}

static outcome moment(const uint8_t *text, int64_t size, records *to)
{
    if (is(text, size, "infinity"))
        return put_long(to, INT64_MAX);
    if (is(text, size, "-infinity"))
        return put_long(to, INT64_MIN);
    int before_christ = cut_suffix(text, &size, " BC");
    cut_suffix(text, &size, "+00");
    const uint8_t *space = size > 0 ? memchr(text, ' ', (size_t)size) : NULL;
    int64_t days, micros = 0;
    if (space == NULL || !days_of(text, space - text, before_christ, &days))
        return ODD;
    const uint8_t *clock = space + 1;
    int64_t left = text + size - clock;
    if (left < 8 || clock[2] != ':' || clock[5] != ':')
        return ODD;
    int hour = two(clock), minute = two(clock + 3), second = two(clock + 6);
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59)
        return ODD;
    if (left > 8) {
        if (clock[8] != '.' || left == 9 || left > 15)
            return ODD;
        for (int64_t i = 9; i < 15; i++) {
            if (i < left && !is_digit(clock[i]))
                return ODD;
            micros = micros * 10 + (i < left ? clock[i] - '0' : 0);
        }
    }
    micros += ((hour * 60 + minute) * 60 + second) * INT64_C(1000000);
    /* The last whole days that fit 64 bits of microseconds are in the years -290308 and 294247. */
    if (days > INT64_MAX / DAY_US - 1 || days < INT64_MIN / DAY_US + 1)
        return ODD;
    return put_long(to, days * DAY_US + micros);
}

static outcome simple(int kind, const uint8_t *text, int64_t size, records *to)
{
    switch (kind) {
    case KIND_BOOLEAN:
        return boolean(text, size, to);
    case KIND_INTEGER:
        return integer(text, size, to);
    case KIND_FLOAT:
        return floating(text, size, 0, to);
    case KIND_DOUBLE:
        return floating(text, size, 1, to);
    case KIND_STRING:
        return put_string(to, text, size);
    case KIND_BYTES:
        return bytea(text, size, to);
    case KIND_DATE:
        return date(text, size, to);
    case KIND_MOMENT:
        return moment(text, size, to);
    default:
        return ODD;
    }
}

/* An element of an array: its text, in `to->item` where it was quoted. */
typedef struct item {
    const uint8_t *text;
    int64_t size;
    int is_null;
} item;

static outcome next_item(const uint8_t **at, const uint8_t *end, uint8_t delimiter, item *found,
                         records *to)
{
    const uint8_t *from = *at;
    if (from < end && *from == '"') {
        if (!GROWN(to->item, to->item_room, end - from))
            return FAILED;
        uint8_t *plain = to->item;
        for (from++; from < end && *from != '"'; from++) {
            from += *from == '\\';
            if (from >= end)
                return ODD;
            *plain++ = *from;
        }
        if (from++ >= end)
            return ODD;
        *found = (item){to->item, plain - to->item, 0};
    } else {
        const uint8_t *start = from;
        for (; from < end && *from != delimiter; from++)
            if (*from == '"' || *from == '\\' || *from == '{' || *from == '}')
                return ODD;
        if (from == start)
            return ODD;
        *found = (item){start, from - start, is(start, from - start, "NULL")};
    }
    if (from < end && (*from != delimiter || from + 1 == end))
        return ODD;
    *at = from < end ? from + 1 : end;
    return DONE;
}

static outcome array(const column *of, const uint8_t *text, int64_t size, records *to)
{
    outcome done;
    if (size == 0 || text[0] != '{' || (size > 1 && text[1] == '{')) {
        /* Other dimensions, other bounds. */
        done = put_byte(to, of->second);
        return done == DONE ? put_string(to, text, size) : done;
    }
    if (size < 2 || text[size - 1] != '}')
        return ODD;
    if ((done = put_byte(to, of->first)) != DONE)
        return done;
    const uint8_t *end = text + size - 1;
    int64_t count = 0;
    item found;
    for (const uint8_t *at = text + 1; at < end; count++)
        if ((done = next_item(&at, end, of->delimiter, &found, to)) != DONE)
            return done;
    if (count > 0 && (done = put_long(to, count)) != DONE)
        return done;
    for (const uint8_t *at = text + 1; at < end;) {
        if ((done = next_item(&at, end, of->delimiter, &found, to)) != DONE ||
            (done = put_byte(to, found.is_null ? 0 : 2)) != DONE)
            return done;
        if (!found.is_null && (done = simple(of->element, found.text, found.size, to)) != DONE)
            return done;
    }
    return put_byte(to, 0);
}

static outcome hashed(const hmac_key *key, const uint8_t *text, int64_t size, records *to)
{
    static const char HEX[] = "0123456789abcdef";
    uint8_t digest[SHA256_BYTES], shown[2 * SHA256_BYTES];
    hmac_digest(key, text, (size_t)size, digest);
    for (int i = 0; i < SHA256_BYTES; i++) {
        shown[2 * i] = (uint8_t)HEX[digest[i] >> 4];
        shown[2 * i + 1] = (uint8_t)HEX[digest[i] & 15];
    }
    return put_string(to, shown, sizeof shown);
}

static outcome value(const table *in, const column *of, const uint8_t *text, int64_t size,
                     const hmac_key *hashing, records *to)
{
    outcome done = DONE;
    if (of->kind == KIND_ARRAY && of->mask == MASK_NONE)
        return array(of, text, size, to);
    if (of->kind == KIND_DECIMAL &&
        (is(text, size, "NaN") || is(text, size, "Infinity") || is(text, size, "-Infinity"))) {
        done = put_byte(to, of->second);
        return done == DONE ? put_string(to, text, size) : done;
    }
    if (of->has_branch)
        done = put_byte(to, of->first);
    if (done != DONE)
        return done;
    if (of->mask == MASK_HASH)
        return hashed(hashing, text, size, to);
    if (of->mask == MASK_CONSTANT)
        return put_string(to, in->constant, in->constant_size);
    if (of->kind == KIND_DECIMAL)
        return decimal(text, size, of->scale, to);
    return simple(of->kind, text, size, to);
}

outcome encode_record(const table *of, const column *columns, int32_t count, const uint8_t *frame,
                      const field *fields, const hmac_key *hashing, records *to)
{
    outcome done = put(to, frame, sizeof of->key_frame);
    for (int32_t i = 0; i < count && done == DONE; i++) {
        const column *each = &columns[i];
        const field *from = &fields[each->place];
        if (from->letter == 't')
            done = value(of, each, from->text, from->size, hashing, to);
        else if (from->letter == 'n' && each->nullable)
            done = put_byte(to, each->null_branch);
        else
            done = ODD;
    }
    return done;
}
