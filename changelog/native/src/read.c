/* What libpq gives, into memory that is kept: replication messages, and lines of COPY. */
#include <string.h>

#include "api.h"
#include "texts.h"

enum { DATA_HEADER = 25, KEEPALIVE_BYTES = 18, COPY_DONE = -1 };

static uint8_t letter_of(const texts *of, int64_t place)
{
    int64_t start = start_of(of, place);
    return of->ends[place] > start ? of->bytes[start] : 0;
}

static int is_plain(uint8_t letter)
{
    return letter == 'I' || letter == 'U' || letter == 'D' || letter == 'B' || letter == 'C';
}

int64_t messages_alike(const texts *of, int64_t first, uint8_t *plain)
{
    int64_t place = first;
    *plain = first < of->count && is_plain(letter_of(of, first));
    while (place < of->count && is_plain(letter_of(of, place)) == *plain)
        place++;
    return place;
}

int64_t messages_behind_commit(const texts *of)
{
    int64_t place = of->count;
    while (place > 0 && letter_of(of, place - 1) != 'C')
        place--;
    return place;
}

int64_t messages_commit_from(const texts *of, int64_t first)
{
    int64_t place = first;
    while (place < of->count && letter_of(of, place) != 'C')
        place++;
    return place;
}

/* The LSN behind the letter of a BEGIN; of what is too short for one, the highest. */
static uint64_t begun_at(const texts *of, int64_t place)
{
    int64_t start = start_of(of, place);
    if (of->ends[place] - start <= 8)
        return UINT64_MAX;
    uint64_t lsn = 0;
    for (int i = 1; i <= 8; i++)
        lsn = lsn << 8 | of->bytes[start + i];
    return lsn;
}

int64_t messages_whole_before(const texts *of, int64_t first, uint64_t lsn)
{
    int64_t place = first;
    while (place < of->count && letter_of(of, place) == 'B' && begun_at(of, place) < lsn) {
        int64_t commit = messages_commit_from(of, place);
        if (commit == of->count)
            break;
        place = commit + 1;
    }
    return place;
}

/* Take a message of the replication connection; gives what is wrong with it. */
static int32_t take(const uint8_t *message, int size, texts *to, keepalives *told)
{
    told->heard++;
    if (message[0] == 'w' && size > DATA_HEADER)
        return texts_add(to, message + DATA_HEADER, size - DATA_HEADER) ? READ_ALL : READ_NO_MEMORY;
    if (message[0] != 'k' || size != KEEPALIVE_BYTES)
        return READ_ODD;
    uint64_t wal_end = 0;
    for (int i = 1; i <= 8; i++)
        wal_end = wal_end << 8 | message[i];
    if (wal_end > told->wal_end)
        told->wal_end = wal_end;
    told->reply |= message[KEEPALIVE_BYTES - 1] != 0;
    return READ_ALL;
}

int32_t read_stream(const libpq *with, void *connection, int64_t limit, int64_t most, texts *to,
                    keepalives *told)
{
    int consumed = 0;
    while (to->count < limit && start_of(to, to->count) < most) {
        char *message = NULL;
        int size = with->get_copy_data(connection, &message, 1);
        if (size > 0) {
            int32_t done = take((uint8_t *)message, size, to, told);
            with->free_memory(message);
            if (done != READ_ALL)
                return done;
            consumed = 0;
        } else if (size < 0) {
            return size == COPY_DONE ? READ_ENDED : READ_FAILED;
        } else if (consumed) {
            break;
        } else if (!with->consume_input(connection)) {
            return READ_LOST;
        } else {
            consumed = 1;
        }
    }
    return READ_ALL;
}

int32_t read_copy(const libpq *with, void *connection, int64_t limit, int64_t most, texts *to)
{
    while (to->count < limit && start_of(to, to->count) < most) {
        char *line = NULL;
        int size = with->get_copy_data(connection, &line, 0);
        if (size < 0)
            return size == COPY_DONE ? READ_ENDED : READ_FAILED;
        int32_t done = READ_ODD;
        if (size > 0 && memchr(line, '\n', (size_t)size) == line + size - 1)
            done = texts_add(to, (uint8_t *)line, size - 1) ? READ_ALL : READ_NO_MEMORY;
        with->free_memory(line);
        if (done != READ_ALL)
            return done;
    }
    return READ_ALL;
}
