"""The partition of a record.

By its key: the Java clients' murmur2 (librdkafka's `murmur2_random`). A record without a key has
its place from its position, so that it is the same whenever the transaction is sent again.
"""

from __future__ import annotations

from changelog.contract.base.position import Position

MULTIPLIER, SEED = 0x5BD1E995, 0x9747B28C  # the constants of murmur2 as Kafka's clients use it

_MASK = 0xFFFFFFFF


def murmur2(raw: bytes) -> int:
    """Hash bytes as `org.apache.kafka.common.utils.Utils.murmur2` does; unsigned 32 bits."""
    length = len(raw)
    value = SEED ^ length
    whole = length & ~3
    for place in range(0, whole, 4):
        word = int.from_bytes(raw[place : place + 4], "little") * MULTIPLIER & _MASK
        word = (word ^ (word >> 24)) * MULTIPLIER & _MASK
        value = (value * MULTIPLIER & _MASK) ^ word
    if tail := raw[whole:]:
        value = (value ^ int.from_bytes(tail, "little")) * MULTIPLIER & _MASK
    value = (value ^ (value >> 13)) * MULTIPLIER & _MASK
    return value ^ (value >> 15)


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key among `partitions`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partition_without_key(position: Position, partitions: int) -> int:
    """Return the partition of a record without a key.

    The rows of a transaction lie together, in their order, and so do those of a chunk of a
    snapshot, whose number is in the upper half of the sequence.
    """
    place = (position.commit_lsn << 32) | (position.sequence >> 32)
    return partition_of(place.to_bytes(12, "big"), partitions)
