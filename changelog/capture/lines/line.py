"""One JSON object a line: rows of the snapshot, changes, and marks between them (pure).

`op` stands first. A row of the snapshot is `r`, a change `c`, `u`, `d`, a truncation `t`. Marks
are `begin` (the first line: which slot of which server, and where), `copied` (the snapshot is
whole) and `at` (every transaction that commits before this LSN is above). Values have the forms
of `changelog.contract.forms.document`.

Flat lines are events alone, as pgwalreader prints them: `type`, `schema`, `table`, `lsn` (number),
`ts` (milliseconds), `ingestion` (nanoseconds), and each column as `before_…` and `after_…`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, NamedTuple, Protocol, assert_never

from changelog.capture.rows.shape import RowShape
from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.base.headers import Op
from changelog.contract.base.lsn import Lsn
from changelog.contract.forms.document import Documents, joined, quoted
from changelog.contract.forms.event import AFTER, BEFORE, WORDS
from changelog.contract.rows.change import Change, Delete, Insert, Truncate, Update
from changelog.contract.rows.relation import UNCHANGED, KeyRow, Row

_START = datetime(1970, 1, 1, tzinfo=UTC)


class ChangePlace(NamedTuple):
    """Place of a change: its commit and its number in that transaction."""

    lsn: Lsn
    sequence: int


@dataclass(frozen=True, slots=True)
class FileBegin:
    """The first line of a file of changes."""

    OPENS: ClassVar[bytes] = b'{"op":"begin"'

    slot: str  # the replication slot
    system_id: str  # the server's identity
    lsn: Lsn  # where the snapshot ends and the stream begins
    tables: tuple[str, ...]  # those of which the snapshot has the rows

    def line(self) -> bytes:
        """Return the line."""
        return _mark(
            "begin",
            slot=self.slot,
            system_id=self.system_id,
            lsn=str(self.lsn),
            tables=list(self.tables),
        )


def copied(lsn: Lsn) -> bytes:
    """Return the line that follows the last row of the snapshot."""
    return _mark("copied", lsn=str(lsn))


def at(lsn: Lsn) -> bytes:
    """Return the line that says that all transactions before an LSN are above."""
    return _mark("at", lsn=str(lsn))


def _mark(op: str, **members: str | list[str]) -> bytes:
    mark = {"op": op, **members}
    return json.dumps(mark, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def is_mark(line: bytes, op: str) -> bool:
    """Tell whether a line is a mark of a kind."""
    return line.startswith(b'{"op":"%s"' % op.encode())


def begin_of(line: bytes) -> FileBegin:
    """Read the first line.

    Raises CorruptRecordError: it is another one.
    """
    members = _read(line)
    try:
        if members["op"] != "begin":
            raise CorruptRecordError('the first line is no "begin"')
        slot, system, lsn = (
            str(members["slot"]),
            str(members["system_id"]),
            Lsn.parse(members["lsn"]),
        )
        return FileBegin(slot, system, lsn, tuple(map(str, members["tables"])))
    except (LookupError, TypeError, ValueError) as error:
        raise CorruptRecordError('the first line is no "begin"') from error


def place_of(line: bytes) -> ChangePlace:
    """Return the place of a change; a mark's is after all that commits before its LSN.

    Raises CorruptRecordError: the line is none of ours.
    """
    members = _read(line)
    try:
        sequence = int(members.get("sequence", -1))
        # One truncation of several tables has one place: it is written again as a whole.
        return ChangePlace(Lsn.parse(members["lsn"]), sequence - (members["op"] == "t"))
    except (LookupError, TypeError, ValueError) as error:
        raise CorruptRecordError("a line has no place in the WAL") from error


def _read(line: bytes) -> dict[str, Any]:
    try:
        members = json.loads(line)
    except ValueError as error:
        raise CorruptRecordError("a line is no JSON") from error
    if not isinstance(members, dict):
        raise CorruptRecordError("a line is no JSON object")
    return members


class LineWriter(Protocol):
    """Writes the lines of one version of a table."""

    def read(self, row: Row, key: KeyRow, lsn: Lsn, ts_us: int, /) -> bytes:
        """Return the line of a row of the snapshot.

        Raises EncodeError: a value has no exact form; names table and column.
        """

    def change(self, change: Change, place: ChangePlace, ts_us: int, xid: int, /) -> bytes:
        """Return the line of a change; of an update the value that was not sent is left out.

        Raises EncodeError: a value has no exact form; names table and column.
        """


class FlatEncoder:
    """Writes flat lines; what is not known of a row is left out, null is null."""

    def __init__(self, shape: RowShape) -> None:
        """Prepare; `shape` says how its rows are written."""
        self._shape = shape
        self._before = Documents(shape.logged, prefix=BEFORE)
        self._after = Documents(shape.logged, prefix=AFTER)
        name = shape.relation.name
        self._where = f'"schema":{quoted(name.schema)},"table":{quoted(name.table)}'

    def read(self, row: Row, _key: KeyRow, lsn: Lsn, ts_us: int) -> bytes:
        """Return the line of a row of the snapshot; see `LineWriter`."""
        return self._line(Op.READ, lsn, ts_us, self._new(row))

    def change(self, change: Change, place: ChangePlace, ts_us: int, _xid: int) -> bytes:
        """Return the line of a change; a key change is one event; see `LineWriter`."""
        match change:
            case Insert(row=row):
                op, members = Op.CREATE, self._new(row)
            case Update(old_key=old, row=row, old=before):
                op, members = Op.UPDATE, [*self._old(old, before), *self._new(row)]
            case Delete(key=key, old=before):
                op, members = Op.DELETE, self._old(key, before)
            case Truncate():
                op, members = Op.TRUNCATE, []
            case _:
                assert_never(change)
        return self._line(op, place.lsn, ts_us, members)

    def _line(self, op: Op, lsn: Lsn, ts_us: int, members: Sequence[str]) -> bytes:
        head = [f'"type":"{WORDS[op]}"', self._where, f'"lsn":{int(lsn)}', f'"ts":{ts_us // 1000}']
        head.append(f'"ingestion":{time.time_ns()}')
        return joined([*head, *members]).encode("utf-8") + b"\n"

    def _old(self, key: KeyRow, row: Row | None) -> list[str]:
        if row is None:
            return self._before.key_members(self._shape.key(key)) if key else []
        return self._before.members(self._shape.row(row))

    def _new(self, row: Row) -> list[str]:
        return self._after.known_members(self._shape.row(row))


class LineEncoder:
    """Writes the lines of one version of a table."""

    def __init__(self, shape: RowShape) -> None:
        """Prepare; `shape` says how its rows are written."""
        self._shape = shape
        self._documents = Documents(shape.logged)
        name = shape.relation.name
        self._where = f'"schema":{quoted(name.schema)},"table":{quoted(name.table)}'

    def read(self, row: Row, key: KeyRow, lsn: Lsn, ts_us: int) -> bytes:
        """Return the line of a row of the snapshot.

        Raises EncodeError: a value has no exact form; names table and column.
        """
        return self._line(
            "r", ChangePlace(lsn, -1), ts_us, None, [*self._key(key), self._after(row)]
        )

    def change(self, change: Change, place: ChangePlace, ts_us: int, xid: int) -> bytes:
        """Return the line of a change; of an update the value that was not sent is left out.

        Raises EncodeError: a value has no exact form; names table and column.
        """
        match change:
            case Insert(key=key, row=row):
                op, members = "c", [*self._key(key), self._after(row)]
            case Update(old_key=old, key=key, row=row, old=before):
                moved = [f'"old_key":{self._key_text(old)}'] if old != key else []
                op = "u"
                members = [*self._key(key), *moved, *self._before(before), self._after(row)]
                members += self._unchanged(row)
            case Delete(key=key, old=before):
                op, members = "d", [*self._key(key), *self._before(before)]
            case Truncate():
                op, members = "t", []
            case _:
                assert_never(change)
        return self._line(op, place, ts_us, xid, members)

    def _line(
        self, op: str, place: ChangePlace, ts_us: int, xid: int | None, members: Sequence[str]
    ) -> bytes:
        moment = (_START + timedelta(microseconds=ts_us)).isoformat(timespec="microseconds")
        head = [f'"op":"{op}"', self._where, f'"lsn":"{place.lsn}"']
        if xid is not None:
            head += [f'"sequence":{place.sequence}', f'"xid":{xid}']
        return joined([*head, f'"ts":"{moment}"', *members]).encode("utf-8") + b"\n"

    def _key(self, key: KeyRow) -> list[str]:
        return [f'"key":{self._key_text(key)}'] if key else []

    def _key_text(self, key: KeyRow) -> str:
        return joined(self._documents.key_members(self._shape.key(key)))

    def _before(self, row: Row | None) -> list[str]:
        if row is None:
            return []
        return [f'"before":{joined(self._documents.members(self._shape.row(row)))}']

    def _after(self, row: Row) -> str:
        return f'"after":{joined(self._documents.known_members(self._shape.row(row)))}'

    def _unchanged(self, row: Row) -> list[str]:
        fields = zip(self._shape.logged.columns, self._shape.row(row), strict=True)
        names = [quoted(column.name) for column, field in fields if field is UNCHANGED]
        return [f'"unchanged":[{",".join(names)}]'] if names else []
