"""Logical messages to records: which are wanted, where they stand, what is skipped."""

import struct

import pytest

from changelog.capture.write.messages import MessageLog, MessageWriter
from changelog.capture.write.written import Written
from changelog.contract.base.headers import Op, decode_headers
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.source.stream.assemble import Began, Emitted

TOPIC = "_messages"
BEGAN = Began(Lsn(1000), 77, 5)
CLOCK_S = 12.5


class Bench:
    def __init__(self, *prefixes, partitions=1, written=None):
        self.records = []
        messages = MessageLog(
            log=self,
            topic=TOPIC,
            epoch=3,
            written=Written(3, {TOPIC: partitions}, {TOPIC: written or {}}),
            clock=lambda: CLOCK_S,
        )
        self.writer = MessageWriter(messages, prefixes)

    def produce(self, topic, key, value, headers, partition=None):
        self.records.append((topic, key, value, headers, partition))

    def write(self, prefix="p", *, transactional=True, lsn=900, sequence=4):
        message = Emitted(prefix, b"text", transactional, Lsn(lsn), sequence)
        return self.writer.write(message, BEGAN)


def test_a_message_of_a_transaction_stands_among_its_rows():
    bench = Bench("*")
    assert bench.write("order.placed") == 1
    ((topic, key, value, headers, partition),) = bench.records
    assert (topic, key, value, partition) == (TOPIC, b"order.placed", b"text", 0)
    assert decode_headers(headers) == (Position(3, Lsn(1000), 4), Op.MESSAGE, 77)
    assert dict(headers)["transactional"] == b"t"


def test_a_message_of_none_stands_at_the_end_of_its_own_record_and_has_the_time_of_reading():
    bench = Bench("*")
    bench.write(transactional=False, lsn=1200, sequence=0)
    ((_, _, _, headers, _),) = bench.records
    assert decode_headers(headers) == (Position(3, Lsn(1199), 0), Op.MESSAGE, 12_500_000)
    assert dict(headers)["transactional"] == b"f"
    assert dict(headers)["ts"] == struct.pack(">q", 12_500_000)


@pytest.mark.parametrize(
    ("patterns", "prefix", "wanted"),
    [
        (["*"], "", True),
        (["outbox.*"], "outbox.orders", True),
        (["outbox.*"], "outbox", False),
        (["a", "b?"], "bc", True),
        (["A"], "a", False),
        (["a.c"], "abc", False),
        (["*"], "line\nbreak", True),
        ([], "a", False),
        (["*"], "changelog", False),
        (["changelog*"], "changelog.ddl", False),
        (["*"], "changelogs", True),
    ],
)
def test_prefixes_are_chosen_by_patterns_and_our_own_never(patterns, prefix, wanted):
    assert Bench(*patterns).write(prefix) == wanted
