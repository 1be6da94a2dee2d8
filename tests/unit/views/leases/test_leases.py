"""How much a holder of many locks writes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Self, cast

from views.leases.leases import Leases
from views.leases.record import LeaseRecord, Owner, Placed, split_key


class Topic:
    def __init__(self) -> None:
        self.records: list[Placed] = []
        self.seen = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close nothing."""

    def append(self, records: Mapping[bytes, LeaseRecord | None]) -> int:
        for key, record in records.items():
            lock, claim = split_key(key)
            self.records.append(
                Placed(
                    offset=len(self.records),
                    at_ms=time.time_ns() // 1_000_000,
                    lock=lock,
                    id=claim,
                    record=record,
                )
            )
        return len(self.records)

    def read(self, end: int | None = None) -> Iterator[Placed]:
        until = len(self.records) if end is None else end
        while self.seen + 1 < until:
            self.seen += 1
            yield self.records[self.seen]


def test_what_is_built_under_one_lock_is_said_of_that_lock_alone() -> None:
    topic = Topic()
    leases = Leases(lambda: cast("Any", topic), ttl_s=60, place="here")
    locks = [f"views/v{number}/build" for number in range(50)]
    with leases.holding(dict.fromkeys(locks, "taken"), lambda: True):
        before = len(topic.records)
        for number, lock in enumerate(locks):
            leases.say(lock, [number])
        assert len(topic.records) == before + len(locks)
        told = {each.lock: each.record for each in topic.records[before:]}
        assert [each and each.building for each in told.values()] == [(n,) for n in range(50)]


def test_the_record_of_a_lock_has_no_key_of_an_erased_row(monkeypatch):
    words = ["/usr/bin/changelog", "erase", "--key", "email=a@b.example", "--key=id=7", "--yes"]
    monkeypatch.setattr("sys.argv", words)
    command = Owner.this_process().command
    assert command == "changelog erase --key '***' '--key=***' --yes"
