/* The last record of each key of a range, in bounded memory; called by
 * changelog/native/compiled/fold.py.
 *
 * Records lie in an array in the order in which their keys came first; a table of slots finds them
 * by a hash of the key. What of a record has to be kept is one block of memory: position, key,
 * value. Where the keys no longer fit, all that is held goes to a file in buckets by the same hash,
 * and each bucket is folded by itself at the end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api.h"

enum { POSITION_BYTES = 20, BUCKETS = 128, BUCKET_SHIFT = 57, FEWEST_SLOTS = 1024 };
enum { ENTRY_BYTES = 112 }; /* of a key beside its block: entry and slot, in arrays that doubled */
enum { PAGE_BYTES = 1 << 20 };
enum { GRAIN = 32, CLASSES = 128 }; /* blocks are multiples of a grain; larger ones are malloc's */

typedef struct {
    uint64_t hash;
    int64_t offset;
    uint8_t *block;
    uint32_t key_size;
    int32_t value_size; /* -1: a tombstone */
    uint32_t capacity;  /* of the block */
    uint8_t fault;
    uint8_t has_key;
} entry;

/* A part of the file that belongs to one bucket. */
typedef struct {
    int64_t at;
    int64_t size;
} chunk;

/* Memory for blocks: pages that blocks are cut from, and per size those that are free again. malloc
 * would spend as long on putting freed neighbours together as all the rest takes. */
typedef struct page {
    struct page *before;
    uint8_t bytes[PAGE_BYTES];
} page;

struct fold {
    uint8_t prefix[8];
    uint32_t prefix_size;
    uint8_t since[POSITION_BYTES], before[POSITION_BYTES];
    int has_since, keeps_faults, by_offset;
    int32_t partition, homes;
    int64_t most_bytes;
    uint64_t seed;

    entry *entries;
    uint32_t count, room;
    uint64_t *slots; /* upper half: of the hash; lower half: number of the entry + 1 */
    uint32_t mask;
    int64_t held_bytes;
    page *pages;
    size_t page_used;
    uint8_t *free_blocks[CLASSES + 1];

    int64_t records, tombstones;
    int64_t strange_offset;
    int32_t strange_place;

    int file;
    int64_t file_end;
    chunk *chunks; /* BUCKETS at a time, one spill behind the other */
    uint32_t spills;
    uint32_t bucket; /* the next to be given */
    uint32_t cursor; /* the next entry to be given */
    uint32_t *picked;
    uint32_t picked_count, picked_room;
};

/* ---- hash ---- */

static inline uint64_t mixed(uint64_t a, uint64_t b)
{
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Eight bytes at a time through a multiplication of 128 bits, from a seed that nobody outside
 * knows: who chooses keys cannot choose their slots. */
static uint64_t hash_of(uint64_t seed, const uint8_t *bytes, size_t size)
{
    const uint64_t odd = 0x9E3779B97F4A7C15u, other = 0xD6E8FEB86659FD93u;
    uint64_t value = seed ^ mixed(size ^ odd, other), word;
    while (size >= 8) {
        memcpy(&word, bytes, 8);
        value = mixed(word ^ odd, value ^ other);
        bytes += 8;
        size -= 8;
    }
    if (size > 0) {
        word = 0;
        memcpy(&word, bytes, size);
        value = mixed(word ^ odd, value ^ other);
    }
    return mixed(value ^ odd, other);
}

/* ---- blocks ---- */

static uint8_t *new_block(fold *f, size_t capacity)
{
    size_t class = capacity / GRAIN;
    if (class > CLASSES)
        return malloc(capacity);
    uint8_t *block = f->free_blocks[class];
    if (block != NULL) {
        memcpy(&f->free_blocks[class], block, sizeof block);
        return block;
    }
    if (f->pages == NULL || f->page_used + capacity > PAGE_BYTES) {
        page *added = malloc(sizeof *added);
        if (added == NULL)
            return NULL;
        added->before = f->pages;
        f->pages = added;
        f->page_used = 0;
    }
    block = f->pages->bytes + f->page_used;
    f->page_used += capacity;
    return block;
}

static void free_block(fold *f, uint8_t *block, size_t capacity)
{
    size_t class = capacity / GRAIN;
    if (class > CLASSES) {
        free(block);
    } else if (block != NULL) {
        memcpy(block, &f->free_blocks[class], sizeof block);
        f->free_blocks[class] = block;
    }
}

/* ---- table ---- */

static inline uint64_t slot_value(uint64_t hash, uint32_t number)
{
    return (hash & 0xFFFFFFFF00000000u) | (number + 1);
}

static int grow_slots(fold *f)
{
    uint64_t wanted = f->mask == 0 ? FEWEST_SLOTS : 2 * ((uint64_t)f->mask + 1);
    if (wanted > (uint64_t)1 << 31)
        return FOLD_NO_MEMORY;
    uint64_t *slots = calloc(wanted, sizeof *slots);
    if (slots == NULL)
        return FOLD_NO_MEMORY;
    free(f->slots);
    f->slots = slots;
    f->mask = (uint32_t)wanted - 1;
    for (uint32_t number = 0; number < f->count; number++) {
        if (!f->entries[number].has_key)
            continue;
        uint32_t at = (uint32_t)f->entries[number].hash & f->mask;
        while (slots[at] != 0)
            at = (at + 1) & f->mask;
        slots[at] = slot_value(f->entries[number].hash, number);
    }
    return FOLD_OK;
}

/* Give the entry of a key, or NULL and the free slot where it belongs. */
static entry *find(fold *f, uint64_t hash, const uint8_t *key, size_t size, uint32_t *free_slot)
{
    uint32_t at = (uint32_t)hash & f->mask;
    for (; f->slots[at] != 0; at = (at + 1) & f->mask) {
        if ((f->slots[at] ^ hash) >> 32 != 0)
            continue;
        entry *held = &f->entries[(uint32_t)f->slots[at] - 1];
        if (held->key_size == size && memcmp(held->block + POSITION_BYTES, key, size) == 0)
            return held;
    }
    *free_slot = at;
    return NULL;
}

static int fill(fold *f, entry *held, const fold_record *record, const uint8_t *position, int fault)
{
    size_t value_size = record->value == NULL ? 0 : record->value_size;
    size_t needed = POSITION_BYTES + record->key_size + value_size;
    if (needed > UINT32_MAX / 2 || value_size > INT32_MAX)
        return FOLD_NO_MEMORY;
    if (held->block == NULL || needed > held->capacity || held->capacity > 2 * needed + 64) {
        /* A little more than asked for: the next value of this key is rarely of the same size. */
        size_t capacity = (needed + GRAIN + GRAIN / 2) / GRAIN * GRAIN;
        uint8_t *block = new_block(f, capacity);
        if (block == NULL)
            return FOLD_NO_MEMORY;
        if (record->key_size > 0)
            memcpy(block + POSITION_BYTES, record->key, record->key_size);
        free_block(f, held->block, held->capacity);
        f->held_bytes += (int64_t)capacity - held->capacity;
        held->block = block;
        held->capacity = (uint32_t)capacity;
    }
    memcpy(held->block, position, POSITION_BYTES);
    if (value_size > 0)
        memcpy(held->block + POSITION_BYTES + record->key_size, record->value, value_size);
    held->value_size = record->value == NULL ? -1 : (int32_t)value_size;
    held->offset = record->offset;
    held->fault = (uint8_t)fault;
    return FOLD_OK;
}

static entry *add_entry(fold *f, uint64_t hash, const fold_record *record)
{
    if (f->count == f->room) {
        uint64_t room = f->room == 0 ? FEWEST_SLOTS / 2 : 2 * (uint64_t)f->room;
        entry *entries = room > UINT32_MAX / 2 ? NULL : realloc(f->entries, room * sizeof *entries);
        if (entries == NULL)
            return NULL;
        f->entries = entries;
        f->room = (uint32_t)room;
    }
    entry *added = &f->entries[f->count++];
    memset(added, 0, sizeof *added);
    added->hash = hash;
    added->key_size = (uint32_t)record->key_size;
    added->has_key = record->key != NULL;
    f->held_bytes += ENTRY_BYTES;
    return added;
}

/* Keep a record unless one that is held of its key stands behind it. */
static int keep(fold *f, uint64_t hash, const fold_record *record, const uint8_t *position, int fault)
{
    if (record->key_size > UINT32_MAX / 4)
        return FOLD_NO_MEMORY;
    uint32_t free_slot = 0;
    if (record->key != NULL) {
        entry *held = find(f, hash, record->key, record->key_size, &free_slot);
        if (held != NULL) {
            if (memcmp(held->block, position, POSITION_BYTES) > 0)
                return FOLD_OK;
            return fill(f, held, record, position, fault);
        }
    }
    entry *added = add_entry(f, hash, record);
    if (added == NULL || fill(f, added, record, position, fault) != FOLD_OK)
        return FOLD_NO_MEMORY;
    if (record->key == NULL)
        return FOLD_OK; /* each is the last of itself */
    f->slots[free_slot] = slot_value(hash, f->count - 1);
    return 2 * (uint64_t)f->count > f->mask ? grow_slots(f) : FOLD_OK;
}

static void forget(fold *f)
{
    for (uint32_t number = 0; number < f->count; number++)
        if (f->entries[number].capacity / GRAIN > CLASSES)
            free(f->entries[number].block);
    while (f->pages != NULL) {
        page *before = f->pages->before;
        free(f->pages);
        f->pages = before;
    }
    memset(f->free_blocks, 0, sizeof f->free_blocks);
    f->count = 0;
    f->held_bytes = 0;
    f->cursor = 0;
    if (f->slots != NULL)
        memset(f->slots, 0, ((size_t)f->mask + 1) * sizeof *f->slots);
}

/* ---- what Python calls ---- */

fold *fold_new(const fold_rules *rules)
{
    fold *f = calloc(1, sizeof *f);
    if (f == NULL || rules->prefix_size > sizeof f->prefix)
        return free(f), NULL;
    memcpy(f->prefix, rules->prefix, rules->prefix_size);
    f->prefix_size = rules->prefix_size;
    f->has_since = rules->since != NULL;
    if (f->has_since)
        memcpy(f->since, rules->since, POSITION_BYTES);
    memcpy(f->before, rules->before, POSITION_BYTES);
    f->keeps_faults = rules->keeps_faults;
    f->by_offset = rules->by_offset;
    f->most_bytes = rules->most_bytes;
    f->partition = rules->partition;
    f->homes = rules->homes;
    f->seed = rules->seed;
    f->file = -1;
    if (grow_slots(f) != FOLD_OK)
        return fold_free(f), NULL;
    return f;
}

void fold_free(fold *f)
{
    if (f == NULL)
        return;
    forget(f);
    free(f->entries);
    free(f->slots);
    free(f->chunks);
    free(f->picked);
    free(f);
}

static const uint8_t LAST[POSITION_BYTES] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
                                             255, 255, 255, 255, 255, 255, 255, 255, 255, 255};

static uint64_t hash_of_record(const fold *f, const fold_record *record)
{
    if (record->key == NULL)
        return hash_of(f->seed, (const uint8_t *)&record->offset, sizeof record->offset);
    return hash_of(f->seed, record->key, record->key_size);
}

static int add(fold *f, const fold_record *record, uint64_t hash)
{
    f->records++;
    f->tombstones += record->value == NULL;
    if (f->by_offset)
        return keep(f, hash, record, LAST, FOLD_SOUND);
    int has_place = record->position != NULL && record->position_size == POSITION_BYTES;
    if (has_place && memcmp(record->position, f->before, POSITION_BYTES) >= 0)
        return FOLD_OK;
    int has_key = record->key != NULL && record->key_size >= f->prefix_size &&
                  memcmp(record->key, f->prefix, f->prefix_size) == 0;
    if (has_place && has_key)
        return keep(f, hash, record, record->position, FOLD_SOUND);
    int fault = has_key ? FOLD_NO_POSITION : FOLD_NO_KEY;
    if (f->keeps_faults)
        return keep(f, hash, record, LAST, fault);
    f->strange_offset = record->offset;
    return fault == FOLD_NO_KEY ? FOLD_STRANGE_KEY : FOLD_STRANGE_POSITION;
}

/* Ask for the memory that a record will need: its slot, then its entry, then its block. With
 * millions of keys each of the three is far from the processor, and waiting for one record's is
 * time for those of the next ones. */
enum { AHEAD = 8 };

static const entry *entry_ahead(const fold *f, uint64_t hash)
{
    uint64_t slot = f->slots[(uint32_t)hash & f->mask];
    return slot == 0 || (slot ^ hash) >> 32 != 0 ? NULL : &f->entries[(uint32_t)slot - 1];
}

static void ask_ahead(const fold *f, const uint64_t *hashes, size_t at, size_t count)
{
    const entry *held;
    if (at + 3 * AHEAD < count)
        __builtin_prefetch(&f->slots[(uint32_t)hashes[at + 3 * AHEAD] & f->mask]);
    if (at + 2 * AHEAD < count && (held = entry_ahead(f, hashes[at + 2 * AHEAD])) != NULL)
        __builtin_prefetch(held);
    if (at + AHEAD < count && (held = entry_ahead(f, hashes[at + AHEAD])) != NULL) {
        __builtin_prefetch(held->block);
        __builtin_prefetch(held->block + 64, 1);
        __builtin_prefetch(held->block + 128, 1);
    }
}

int fold_add(fold *f, const fold_record *records, size_t count)
{
    uint64_t hashes[FOLD_MOST_RECORDS];
    while (count > 0) {
        size_t some = count < FOLD_MOST_RECORDS ? count : FOLD_MOST_RECORDS;
        for (size_t n = 0; n < some; n++)
            hashes[n] = hash_of_record(f, &records[n]);
        for (size_t n = 0; n < some; n++) {
            ask_ahead(f, hashes, n, some);
            int outcome = add(f, &records[n], hashes[n]);
            if (outcome != FOLD_OK)
                return outcome;
        }
        records += some;
        count -= some;
    }
    return FOLD_OK;
}

void fold_hashes(uint64_t seed, const int32_t *ends, const uint8_t *bytes, int64_t count,
                 uint64_t *to)
{
    for (int64_t n = 0; n < count; n++)
        to[n] = hash_of(seed, bytes + ends[n], (size_t)(ends[n + 1] - ends[n]));
}

int fold_is_full(const fold *f)
{
    return f->held_bytes > f->most_bytes;
}

int64_t fold_keys(const fold *f) { return f->count; }
int64_t fold_records(const fold *f) { return f->records; }
int64_t fold_tombstones(const fold *f) { return f->tombstones; }
int64_t fold_strange_offset(const fold *f) { return f->strange_offset; }
int32_t fold_strange_place(const fold *f) { return f->strange_place; }

/* ---- file ---- */

/* Of an entry in the file; position, key and value follow. Read by the process that wrote it. */
typedef struct {
    uint64_t hash;
    int64_t offset;
    uint32_t key_size;
    int32_t value_size;
    uint32_t fault, has_key;
} stored;

static int write_all(int file, const uint8_t *bytes, size_t size, int64_t at)
{
    while (size > 0) {
        ssize_t written = pwrite(file, bytes, size, at);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return FOLD_FILE;
        bytes += written;
        size -= (size_t)written;
        at += written;
    }
    return FOLD_OK;
}

static int read_all(int file, uint8_t *bytes, size_t size, int64_t at)
{
    while (size > 0) {
        ssize_t found = pread(file, bytes, size, at);
        if (found < 0 && errno == EINTR)
            continue;
        if (found <= 0)
            return FOLD_FILE;
        bytes += found;
        size -= (size_t)found;
        at += found;
    }
    return FOLD_OK;
}

static size_t block_size(const entry *held)
{
    return POSITION_BYTES + held->key_size + (size_t)(held->value_size > 0 ? held->value_size : 0);
}

static int put(fold *f, const uint8_t *bytes, size_t size, uint8_t *page, size_t *used)
{
    if (*used + size > PAGE_BYTES) {
        int outcome = write_all(f->file, page, *used, f->file_end);
        if (outcome != FOLD_OK)
            return outcome;
        f->file_end += (int64_t)*used;
        *used = 0;
    }
    if (size > PAGE_BYTES) {
        int outcome = write_all(f->file, bytes, size, f->file_end);
        f->file_end += (int64_t)size;
        return outcome;
    }
    memcpy(page + *used, bytes, size);
    *used += size;
    return FOLD_OK;
}

static int write_buckets(fold *f, const uint32_t *order, const uint32_t *ends, chunk *chunks,
                         uint8_t *page)
{
    size_t used = 0;
    for (uint32_t bucket = 0; bucket < BUCKETS; bucket++) {
        chunks[bucket].at = f->file_end + (int64_t)used;
        for (uint32_t n = bucket == 0 ? 0 : ends[bucket - 1]; n < ends[bucket]; n++) {
            const entry *held = &f->entries[order[n]];
            stored head = {held->hash,       held->offset, held->key_size,
                           held->value_size, held->fault,  held->has_key};
            int outcome = put(f, (const uint8_t *)&head, sizeof head, page, &used);
            if (outcome == FOLD_OK)
                outcome = put(f, held->block, block_size(held), page, &used);
            if (outcome != FOLD_OK)
                return outcome;
        }
        chunks[bucket].size = f->file_end + (int64_t)used - chunks[bucket].at;
    }
    int outcome = write_all(f->file, page, used, f->file_end);
    f->file_end += (int64_t)used;
    return outcome;
}

int fold_spill(fold *f, int file)
{
    uint32_t ends[BUCKETS] = {0}, next[BUCKETS];
    f->file = file;
    chunk *chunks = realloc(f->chunks, (f->spills + 1) * BUCKETS * sizeof *chunks);
    if (chunks == NULL)
        return FOLD_NO_MEMORY;
    f->chunks = chunks;
    uint32_t *order = malloc((f->count + 1) * sizeof *order);
    uint8_t *page = malloc(PAGE_BYTES);
    int outcome = FOLD_NO_MEMORY;
    if (order != NULL && page != NULL) {
        for (uint32_t number = 0; number < f->count; number++)
            ends[f->entries[number].hash >> BUCKET_SHIFT]++;
        for (uint32_t bucket = 0, sum = 0; bucket < BUCKETS; bucket++) {
            next[bucket] = sum;
            sum += ends[bucket];
            ends[bucket] = sum;
        }
        for (uint32_t number = 0; number < f->count; number++)
            order[next[f->entries[number].hash >> BUCKET_SHIFT]++] = number;
        outcome = write_buckets(f, order, ends, &chunks[f->spills * BUCKETS], page);
    }
    free(order);
    free(page);
    if (outcome == FOLD_OK) {
        f->spills++;
        forget(f);
    }
    return outcome;
}

static int read_chunk(fold *f, const chunk *from)
{
    if (from->size == 0)
        return FOLD_OK;
    uint8_t *bytes = malloc((size_t)from->size);
    if (bytes == NULL)
        return FOLD_NO_MEMORY;
    int outcome = read_all(f->file, bytes, (size_t)from->size, from->at);
    const uint8_t *at = bytes, *end = bytes + from->size;
    while (outcome == FOLD_OK && at < end) {
        stored head;
        memcpy(&head, at, sizeof head);
        const uint8_t *position = at + sizeof head, *key = position + POSITION_BYTES;
        fold_record record = {
            .key = head.has_key ? key : NULL,
            .key_size = head.key_size,
            .value = head.value_size < 0 ? NULL : key + head.key_size,
            .value_size = head.value_size < 0 ? 0 : (size_t)head.value_size,
            .offset = head.offset,
        };
        outcome = keep(f, head.hash, &record, position, (int)head.fault);
        at = key + head.key_size + record.value_size;
    }
    free(bytes);
    return outcome;
}

int fold_next_bucket(fold *f)
{
    if (f->spills == 0)
        return f->bucket++ == 0 ? FOLD_OK : FOLD_OVER;
    if (f->bucket == BUCKETS)
        return FOLD_OVER;
    forget(f);
    int outcome = FOLD_OK;
    for (uint32_t spill = 0; spill < f->spills && outcome == FOLD_OK; spill++)
        outcome = read_chunk(f, &f->chunks[spill * BUCKETS + f->bucket]);
    f->bucket++;
    return outcome;
}

/* ---- what comes out ---- */

int fold_pick(fold *f, size_t most_rows, size_t most_bytes, fold_sizes *sizes)
{
    memset(sizes, 0, sizeof *sizes);
    f->picked_count = 0;
    if (f->picked_room < most_rows) {
        uint32_t *picked = realloc(f->picked, most_rows * sizeof *picked);
        if (picked == NULL)
            return FOLD_NO_MEMORY;
        f->picked = picked;
        f->picked_room = (uint32_t)most_rows;
    }
    for (; f->cursor < f->count && f->picked_count < most_rows; f->cursor++) {
        const entry *held = &f->entries[f->cursor];
        const uint8_t *key = held->block + POSITION_BYTES;
        if (f->has_since) {
            int order = memcmp(held->block, f->since, POSITION_BYTES);
            if (order < 0 || (order == 0 && held->value_size < 0))
                continue;
        }
        size_t value_size = held->value_size > 0 ? (size_t)held->value_size : 0;
        size_t size = sizes->key_bytes + sizes->value_bytes + held->key_size + value_size;
        if (f->picked_count > 0 && size > most_bytes)
            break;
        if (f->homes > 0 && held->fault == FOLD_SOUND) {
            f->strange_place = partition_of(key, held->key_size, f->homes);
            f->strange_offset = held->offset;
            if (f->strange_place != f->partition)
                return FOLD_STRAY;
        }
        f->picked[f->picked_count++] = f->cursor;
        sizes->key_bytes += held->key_size;
        sizes->value_bytes += value_size;
        sizes->faults += held->fault != FOLD_SOUND;
    }
    sizes->rows = f->picked_count;
    return FOLD_OK;
}

void fold_fill(const fold *f, const fold_columns *to)
{
    uint8_t *keys = to->keys, *values = to->values;
    int32_t key_end = 0, value_end = 0;
    memset(to->key_is_there, 0, (f->picked_count + 7) / 8);
    memset(to->value_is_there, 0, (f->picked_count + 7) / 8);
    to->key_ends[0] = to->value_ends[0] = to->position_ends[0] = 0;
    for (uint32_t row = 0; row < f->picked_count; row++) {
        const entry *held = &f->entries[f->picked[row]];
        const uint8_t *key = held->block + POSITION_BYTES;
        uint8_t bit = (uint8_t)(1u << (row & 7));
        memcpy(keys + key_end, key, held->key_size);
        key_end += (int32_t)held->key_size;
        if (held->has_key)
            to->key_is_there[row >> 3] |= bit;
        if (held->value_size >= 0) {
            memcpy(values + value_end, key + held->key_size, (size_t)held->value_size);
            value_end += held->value_size;
            to->value_is_there[row >> 3] |= bit;
        }
        memcpy(to->positions + (size_t)row * POSITION_BYTES, held->block, POSITION_BYTES);
        to->key_ends[row + 1] = key_end;
        to->value_ends[row + 1] = value_end;
        to->position_ends[row + 1] = (int32_t)((row + 1) * POSITION_BYTES);
        to->offsets[row] = held->offset;
        to->faults[row] = held->fault;
    }
}
