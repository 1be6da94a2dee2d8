"""Ends of a worker that writes records by HTTP, and defects of its ids, for `connect_worker`.

`--http-dies-at=POINT` kills the worker there, `--http-stands-at=POINT` stops it (SIGSTOP): the
first one that comes there, which a file named by `DIES_ONCE` in the environment says. Points:
`before` anything is written, `records` are written, `id` is written too, `committed`.

Defects: `FORGETS_IDS` does not read which ids are there; `IDS_APART` writes an id in a transaction
of its own, after that of the records; `OWN_NAME` fences nobody.
"""

import os
import signal
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from changelog.connect.produce import lane
from changelog.connect.produce.lane import Lane
from changelog.connect.produce.remembered import RememberedIds

DIES_ONCE = "CHANGELOG_TEST_DIES_ONCE"
DIES, STANDS = "--http-dies-at=", "--http-stands-at="
FORGETS_IDS = "--http-forgets-ids"
IDS_APART = "--http-ids-apart"
OWN_NAME = "--http-own-name"
POINTS = ("before", "records", "id", "committed")


def seed_faults(words: list[str]) -> None:
    """Take the faults out of a command line, and seed them."""
    for word in [word for word in words if word.startswith("--http-")]:
        words.remove(word)
        name, _, point = word.partition("=")
        if point:
            number = signal.SIGKILL if f"{name}=" == DIES else signal.SIGSTOP
            if number == signal.SIGSTOP:  # not the brokers' patience is to decide
                lane.TRANSACTION_MS = 120_000
            _end_at(point, partial(_once, number))
        else:
            _DEFECTS[name]()


def _once(number: int) -> None:
    try:
        os.close(os.open(os.environ[DIES_ONCE], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    signal.raise_signal(number)  # this thread: one sent to the process may come after the commit


def _end_at(point: str, end: Callable[[], None]) -> None:
    cls: Any = Lane
    write, notes, commit = cls._write, cls._notes, cls._commit

    def at_write(self, batch):
        if point == "before":
            end()
        write(self, batch)

    def at_notes(self, batch, answers):
        if point == "records":
            end()
        return notes(self, batch, answers)

    def at_commit(self, producer):
        if point == "id":
            end()
        commit(self, producer)
        if point == "committed":
            end()

    cls._write, cls._notes, cls._commit = at_write, at_notes, at_commit


def _forget() -> None:
    RememberedIds.read_on = lambda self: None  # type: ignore[method-assign]


def _write_ids_apart() -> None:
    cls: Any = Lane
    notes, commit = cls._notes, cls._commit
    waiting: list[Any] = []

    def no_notes(self, batch, answers):
        waiting[:] = notes(self, batch, answers)
        return []

    def commit_twice(self, producer):
        commit(self, producer)
        producer.begin_transaction()
        self._sent(producer, self._topic, waiting)
        lane._repeated(producer.commit_transaction)

    cls._notes, cls._commit = no_notes, commit_twice


def _own_name() -> None:
    cls: Any = Lane
    init = cls.__init__

    def own(self, kafka, transactional_id, ids, topic):
        init(self, kafka, f"{transactional_id}-{uuid.uuid4()}", ids, topic)

    cls.__init__ = own


_DEFECTS = {FORGETS_IDS: _forget, IDS_APART: _write_ids_apart, OWN_NAME: _own_name}
