"""Batches of records, as a load reads them, of values and keys alone."""

from changelog.native import Batch
from changelog.native.loads import BatchRecord

TOPIC = "t"


def record_of(offset, value, key=None, headers=()):
    return BatchRecord(TOPIC, 0, offset, 1_700_000_000_000 + offset, key, value, tuple(headers))


def batch_of(values, keys=None):
    """Return the records of a batch, with offsets from 0 on; the batch lives as long as they do."""
    batch = Batch([TOPIC])
    for offset, value in enumerate(values):
        batch.add(record_of(offset, value, None if keys is None else keys[offset]))
    return batch.all()
