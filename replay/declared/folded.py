"""The last statement of each key in a range of one partition, encoded as a record. Pure.

The rule is that of the fold of a whole log: within a partition the last statement of a key decides,
and a value that it leaves out is taken from the newest older statement of the same row that has it.
Where the log is ordered by the source's position, the statement with the highest one decides; a
tombstone has none and counts by its offset, unless it directly follows the delete that it belongs
to. Whatever could only be decided from records outside of the range is refused, so that the caller
reads the whole log and reports what that finds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from changelog.contract.base.errors import VerdictError
from replay.base.record_place import FetchedRecord
from replay.declared.encoded import DeclaredRowEncoder
from replay.declared.interpret import Interpreter, Row, Statement

HeldValue = Callable[[bytes], bytes | None]
"""Returns the value that the follower has of a key, None where it has no row."""


class ReachedPositions:
    """The newest source position of each key's statements.

    `before`: the positions of earlier ranges. If given, a statement older than its key's newest is
    refused.
    """

    def __init__(self, before: ReachedPositions | None = None) -> None:
        self._before = before
        self.highest: dict[bytes, int] = {}  # the newest position of each key
        # the keys whose last statement is a delete that is older than their newest one: a tombstone
        # that follows it directly does not count either
        self.superseded: set[bytes] = set()
        self._deleted: set[bytes] = set()
        self._ended: set[bytes] = set()

    def counts(self, name: bytes, statement: Statement) -> bool:
        """Tell whether a statement is the newest of its key."""
        follows_delete = name in self._deleted
        self._deleted.discard(name)
        self.superseded.discard(name)
        if statement.is_tombstone:
            return self._tombstone_counts(name, follows_delete=follows_delete)
        reached, lsn = self.highest.get(name), statement.lsn
        if reached is None and self._before is not None:
            reached = self._before.highest.get(name)
        if lsn is None:
            raise VerdictError("it has no position of the source")
        is_newest = reached is None or lsn >= reached
        if not is_newest and (self._before is not None or name in self._ended):
            raise VerdictError(f"it says at position {lsn} what was said of its key at {reached}")
        if statement.row is None:
            self._deleted.add(name)
            if not is_newest:
                self.superseded.add(name)
        if is_newest:
            self.highest[name] = lsn
            self._ended.discard(name)
        return is_newest

    def _tombstone_counts(self, name: bytes, *, follows_delete: bool) -> bool:
        """Tell whether a tombstone deletes its key's row, rather than repeat a delete."""
        if follows_delete:
            return False
        if self._before is not None and name in self._before.superseded:
            raise VerdictError("its tombstone may belong to a delete that was sent again")
        self._ended.add(name)
        return True

    def take(self, later: ReachedPositions) -> None:
        """Merge the positions reached by a later range."""
        self.highest |= later.highest
        self.superseded = (self.superseded - later.highest.keys()) | later.superseded


class _Filled(NamedTuple):
    """A row completed with values from older statements of its key."""

    since: int | None  # source position of the statement that had them; None if not known
    places: tuple[int, ...]  # numbers of the columns that were completed


class LastStatements:
    """Folds the records of a range of a partition, in the order of their offsets.

    `fillable`: numbers of the columns whose values older statements may have. `held_value`: returns
    the rows from before the range. `reached`: decides which statements count, where the log is
    ordered by the source's position.
    """

    def __init__(
        self,
        partition: int,
        reader: Interpreter,
        encoder: DeclaredRowEncoder,
        fillable: Collection[int],
        *,
        held_value: HeldValue,
        reached: ReachedPositions | None,
    ) -> None:
        self._partition, self._reader, self._encoder = partition, reader, encoder
        self._fillable, self._held_value, self._reached = frozenset(fillable), held_value, reached
        self._last: dict[bytes, tuple[bytes | None, int, int | None]] = {}
        self._lacks: dict[bytes, frozenset[int]] = {}
        self._filled: dict[bytes, _Filled] = {}
        self.count = 0  # how many records were taken in

    @property
    def keys(self) -> AbstractSet[bytes]:
        """Return every key that a statement has named."""
        return self._last.keys()

    def add(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Add a record."""
        self.count += 1
        for statement in self._reader.statements(key, value):
            if statement.fault is not None or statement.key is None:
                raise VerdictError(f"{self._place(offset)}: {statement.fault or 'it has no key'}")
            try:
                name = statement.key.encode("utf-8")
                self._state(name, statement, offset)
            except UnicodeEncodeError as error:
                raise VerdictError(f"{self._place(offset)}: its key is no text") from error
            except VerdictError as error:
                raise VerdictError(f"{self._place(offset)}: {error.args[0]}") from error

    def _state(self, name: bytes, statement: Statement, offset: int) -> None:
        if self._reached is not None and not self._reached.counts(name, statement):
            self._require_nothing_new(name, statement)
            return  # a repetition, or older than its key's newest statement
        row, lacks = statement.row, frozenset(statement.missing)
        before = self._filled.pop(name, None)
        if row is not None and lacks:
            lacks = self._fill(name, row, statement)
            since = self._last[name][2] if before is None and name in self._last else None
            self._filled[name] = _Filled(before.since if before else since, statement.missing)
        value = None if row is None else self._encoder.encode(row)
        self._last[name] = value, offset, statement.lsn
        self._lacks.pop(name, None)
        if lacks:
            self._lacks[name] = lacks

    def _require_nothing_new(self, name: bytes, statement: Statement) -> None:
        """Require that an older statement has no value that a newer one lacks."""
        filled = self._filled.get(name)
        if filled is None or statement.lsn is None or not {*filled.places} - {*statement.missing}:
            return
        if filled.since is None or statement.lsn > filled.since:
            raise VerdictError("a newer statement of its key lacks what it may have")

    def _fill(self, name: bytes, row: Row, statement: Statement) -> frozenset[int]:
        """Fill a row from the statement before it; returns the places that stay empty."""
        older = self._last[name][0] if name in self._last else self._held_value(name)
        lacks = set(statement.missing)
        if older is not None and not statement.begins:
            before, unknown = self._encoder.decode(older), self._lacks.get(name, frozenset())
            for place in (lacks & self._fillable) - unknown:
                row[place] = before[place]
                lacks.discard(place)
        for place in lacks:
            row[place] = None
        return frozenset(lacks)

    def records(self) -> Iterator[FetchedRecord]:
        """Return one record of each key."""
        if self._lacks:
            name = next(iter(self._lacks))
            _, offset, _ = self._last[name]
            raise VerdictError(
                f"{self._place(offset)}: the source left out a value of the row with key "
                f"{name.decode()}, which is not known here"
            )
        for name, (value, offset, _) in self._last.items():
            yield name, value, self._partition, offset

    def _place(self, offset: int) -> str:
        topic = self._encoder.schemas.topic
        return f'topic "{topic}", partition {self._partition}, offset {offset}'
