#include "sha256.h"

#include <string.h>

enum { BLOCK = 64 };

static const uint32_t START[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
static const uint32_t ROUND[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotated(uint32_t value, int bits)
{
    return value >> bits | value << (32 - bits);
}

static void take_block(uint32_t *state, const uint8_t *block)
{
    uint32_t word[64], now[8];
    for (int i = 0; i < 16; i++)
        word[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
                  (uint32_t)block[4 * i + 2] << 8 | (uint32_t)block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = word[i - 15], b = word[i - 2];
        word[i] = word[i - 16] + (rotated(a, 7) ^ rotated(a, 18) ^ a >> 3) + word[i - 7] +
                  (rotated(b, 17) ^ rotated(b, 19) ^ b >> 10);
    }
    memcpy(now, state, sizeof now);
    for (int i = 0; i < 64; i++) {
        uint32_t a = now[0], e = now[4];
        uint32_t first = now[7] + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) +
                         ((e & now[5]) ^ (~e & now[6])) + ROUND[i] + word[i];
        uint32_t second = (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) +
                          ((a & now[1]) ^ (a & now[2]) ^ (now[1] & now[2]));
        memmove(now + 1, now, 7 * sizeof *now);
        now[4] += first;
        now[0] = first + second;
    }
    for (int i = 0; i < 8; i++)
        state[i] += now[i];
}

/* Take the last bytes of a text of which `before` bytes went in already. */
static void finish(uint32_t *state, const uint8_t *text, size_t size, uint64_t before,
                   uint8_t *digest)
{
    uint64_t bits = (before + size) * 8;
    for (; size >= BLOCK; size -= BLOCK, text += BLOCK)
        take_block(state, text);
    uint8_t last[2 * BLOCK] = {0};
    if (size > 0)
        memcpy(last, text, size);
    last[size] = 0x80;
    size_t padded = size < BLOCK - 8 ? BLOCK : 2 * BLOCK;
    for (int i = 0; i < 8; i++)
        last[padded - 1 - i] = (uint8_t)(bits >> 8 * i);
    for (size_t at = 0; at < padded; at += BLOCK)
        take_block(state, last + at);
    for (int i = 0; i < SHA256_BYTES; i++)
        digest[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
}

void hmac_prepare(hmac_key *key, const uint8_t *bytes, size_t size)
{
    uint8_t padded[BLOCK] = {0}, block[BLOCK];
    if (size > BLOCK) {
        uint32_t state[8];
        memcpy(state, START, sizeof state);
        finish(state, bytes, size, 0, padded);
    } else if (size > 0) {
        memcpy(padded, bytes, size);
    }
    memcpy(key->inner, START, sizeof START);
    memcpy(key->outer, START, sizeof START);
    for (int i = 0; i < BLOCK; i++)
        block[i] = padded[i] ^ 0x36;
    take_block(key->inner, block);
    for (int i = 0; i < BLOCK; i++)
        block[i] = padded[i] ^ 0x5c;
    take_block(key->outer, block);
}

void hmac_digest(const hmac_key *key, const uint8_t *text, size_t size, uint8_t *digest)
{
    uint32_t state[8];
    uint8_t inner[SHA256_BYTES];
    memcpy(state, key->inner, sizeof state);
    finish(state, text, size, BLOCK, inner);
    memcpy(state, key->outer, sizeof state);
    finish(state, inner, SHA256_BYTES, BLOCK, digest);
}
