/* HMAC-SHA-256 (FIPS 180-4, RFC 2104). */
#ifndef CHANGELOG_SHA256_H
#define CHANGELOG_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32 };

/* The states behind the two padded keys. */
typedef struct hmac_key {
    uint32_t inner[8];
    uint32_t outer[8];
} hmac_key;

void hmac_prepare(hmac_key *key, const uint8_t *bytes, size_t size);
void hmac_digest(const hmac_key *key, const uint8_t *text, size_t size, uint8_t *digest);

#endif
