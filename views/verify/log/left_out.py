"""Columns that Debezium could not write: which they are, and the older records that have them.

A survivor that lacks columns is bundled in one value with the older records that have them, each
with the names of its columns; `DeclaredReader.row` reads the bundle.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import md5
from itertools import groupby
from operator import itemgetter
from typing import Any
from uuid import UUID

_LENGTH = struct.Struct(">I")
BUNDLE = b"\xff"
"""The first byte of a bundle of records: neither Avro's frame nor JSON begins with it."""
HELD = b""
"""Stands in a bundle for the stored row of the key, which has the columns."""


class StandIn:
    """Debezium's placeholder for a value that it did not receive, in the form of each type.

    By `UnchangedToastedPlaceholder` of its connector for PostgreSQL.
    """

    def __init__(self, text: str) -> None:
        """Compute the forms of a text."""
        raw = text.encode()
        uuid = str(UUID(bytes=md5(raw, usedforsecurity=False).digest(), version=3))
        as_map = json.dumps({text: text}, ensure_ascii=False, separators=(",", ":"))
        scalars = (text, base64.b64encode(raw).decode(), as_map)
        self._scalars = {*scalars, raw}
        self._lengths = {len(form) for form in self._scalars}
        self._alone = [[form] for form in (*scalars, raw, uuid)]
        self._octets = [str(octet) for octet in struct.unpack(f"{len(raw)}b", raw)]
        self._map = {text: text}

    def is_it(self, value: Any) -> bool:  # noqa: ANN401
        """Tell whether a value is the placeholder."""
        if isinstance(value, (str, bytes)):
            return len(value) in self._lengths and value in self._scalars
        if isinstance(value, list):
            is_bytes = len(value) == len(self._octets) and [*map(str, value)] == self._octets
            return is_bytes or value in self._alone
        return isinstance(value, dict) and value == self._map


@dataclass(frozen=True, slots=True)
class KeyStatement:
    """A record's statement about a key: `value` if there is a row, and the columns it lacks."""

    place: tuple[int, int]
    value: bytes | None
    lacks: frozenset[str]
    begins: bool
    lsn: int | None = None


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A row of one key."""

    newest: KeyStatement  # its last statement
    older: dict[str, bytes]  # for each column that this lacks, the older record that has it
    # LSN of the key change that gave the row its key, if the first record of the key lacks columns
    # too
    came: int | None

    def holder(self, column: str, departed: Mapping[int, KeyRow]) -> bytes | None:
        """Return the record that has a column, following key changes to earlier keys."""
        row, passed = self, set[int]()
        while column in row.newest.lacks and column not in row.older:
            if row.came is None or row.came in passed or row.came not in departed:
                return None
            passed.add(row.came)
            row = departed[row.came]
        return row.older.get(column, row.newest.value)

    def bundle(self, departed: Mapping[int, KeyRow]) -> bytes:
        """Return the last record and the older records that have its lacking values."""
        holders: dict[bytes, list[str]] = {}
        for column in self.newest.lacks:
            holder = self.holder(column, departed)
            if holder is not None:
                holders.setdefault(holder, []).append(column)
        parts = [self.newest.value or b""]
        for record, columns in holders.items():
            parts += [json.dumps(columns).encode(), record]
        return BUNDLE + b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def _next(row: KeyRow | None, statement: KeyStatement) -> KeyRow:
    """Return a row after the next statement of its key."""
    if statement.begins or row is None:
        return KeyRow(
            statement, {}, statement.lsn if statement.begins and statement.lacks else None
        )
    older = {}
    for column in statement.lacks:
        if column not in row.newest.lacks and row.newest.value is not None:
            older[column] = row.newest.value
        elif column in row.older:
            older[column] = row.older[column]
    return KeyRow(statement, older, row.came if statement.lacks else None)


def unbundled(value: bytes) -> tuple[bytes, list[tuple[list[str], bytes]]]:
    """Return the record of a value, and the older ones with the columns that each has."""
    if not value.startswith(BUNDLE):
        return value, []
    parts, at = [], len(BUNDLE)
    while at < len(value):
        (length,) = _LENGTH.unpack_from(value, at)
        at += _LENGTH.size
        parts.append(value[at : at + length])
        at += length
    return parts[0], [
        (json.loads(names), record) for names, record in zip(parts[1::2], parts[2::2], strict=True)
    ]


def bundles(statements: Iterable[tuple[str, KeyStatement]]) -> Iterator[tuple[int, int, bytes]]:
    """Yield each key's last place and bundle, from statements sorted by key and order."""
    departed: dict[int, KeyRow] = {}
    last: list[KeyRow] = []
    for _, of_key in groupby(statements, itemgetter(0)):
        row: KeyRow | None = None
        for _, statement in of_key:
            if statement.value is not None:
                row = _next(row, statement)
            else:
                if row is not None and statement.lsn is not None:
                    departed[statement.lsn] = row
                row = None
        if row is None or not row.newest.lacks:
            continue
        if row.came is None:
            yield *row.newest.place, row.bundle(departed)
        else:
            last.append(row)  # the statements of its earlier key may come later
    for row in last:
        yield *row.newest.place, row.bundle(departed)
