"""Where a range of a partition ends, and what makes it unreadable; without a broker."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaError

from replay.fetch import PartitionRange, _batches
from replay.marks import Fault, marked

EOF = KafkaError._PARTITION_EOF


@dataclass(frozen=True)
class Event:
    """A record, or with a code what else the client has to say."""

    at: int
    code: int | None = None

    def offset(self):
        return self.at

    def error(self):
        return None if self.code is None else KafkaError(self.code)


class Client:
    """Gives one batch after the other, then nothing."""

    def __init__(self, *batches):
        self._batches = [list(batch) for batch in batches]

    def consume(self, count, _timeout_s):
        return self._batches.pop(0) if self._batches else []

    @property
    def is_read(self):
        return not self._batches


def offsets(client, start, end, stall_s=0.0):
    wanted = PartitionRange(3, start, end)
    return [each.offset() for batch in _batches(client, "t", wanted, stall_s) for each in batch]


def records(*offsets):
    return [Event(offset) for offset in offsets]


@pytest.mark.parametrize(
    "batches",
    [
        [records(0, 1), records(2, 3)],
        [records(0, 1), records(2, 3, 4, 5)],  # more than was asked for
        [records(0, 3)],  # a gap inside
        [records(0), records(9)],  # a gap at the end, and more behind it
        [records(0), [Event(7, EOF)]],  # a gap at the end, and nothing behind it
        [[Event(0), Event(4, EOF)]],
        [[Event(2, EOF)], records(0, 1), [], records(3)],  # the end of before: more has come
        [[Event(-1, KafkaError._TRANSPORT)], records(0, 1, 2, 3)],  # the client tries again
    ],
)
def test_a_range_is_read_to_its_end(batches):
    client = Client(*batches)
    given = {each.at for batch in batches for each in batch if each.code is None}
    assert offsets(client, 0, 4, stall_s=60) == sorted(given & {0, 1, 2, 3})
    assert client.is_read


@pytest.mark.parametrize(
    ("batches", "fault", "said"),
    [
        ([records(0)], Fault.SILENT, "nothing came"),
        ([records(0), [Event(2, EOF)]], Fault.LOST, "ends before offset 4"),
        ([[Event(0, KafkaError._AUTO_OFFSET_RESET)]], Fault.LOST, "not on the log"),
        ([[Event(0, KafkaError.UNKNOWN_TOPIC_OR_PART)]], Fault.LOST, "not on the log"),
        ([[Event(0, KafkaError.TOPIC_AUTHORIZATION_FAILED)]], Fault.REFUSED, "cannot be read"),
    ],
)
def test_a_range_that_cannot_be_read_is_loud(batches, fault, said):
    with pytest.raises(Exception, match="partition 3") as failed:
        offsets(Client(*batches), 0, 4)
    found = marked(str(failed.value))
    assert found is not None
    assert found[0] is fault
    assert said in found[1]
