"""Bounds of what a follower holds on its machine: rows of a table, and room on disk.

Both are looked at before a table is filled, so that a table that is too large is left to Spark with
a reason, and no disk or memory runs full meanwhile.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from changelog.contract.rows.relation import TableName
from views.rebuild.plan.dialect import UnknownValueError

Live = tuple[bytes, bytes, int, int]
_SAMPLE = 10_000
"""Rows by which the size of the others is told."""
_FILE = 1.5
"""Bytes of the file for a byte of its records, indexes counted."""
_PROOF = 1.5
"""And of the verifier's database."""
_SPARE = 1 << 30
"""Bytes that are left to others."""


class TooLargeError(UnknownValueError):
    """A table that does not fit on this machine; the text says by which bound."""


def require_few(table: TableName, rows: int, most: int) -> None:
    """Make sure that a table is one that is held here; `rows`: how many it may have.

    Raises TooLargeError: it is larger.
    """
    if rows > most:
        raise TooLargeError(f"{table} has {rows:,} records, and follow_rows is {most:,}")


def fitting(
    table: TableName, records: Iterable[Live], most: int, folder: Path, *, proves: bool
) -> Iterator[Live]:
    """Return the records of a table that goes into a file of a folder.

    `most`: how many they may be. `proves`: whether the verifier holds them too.

    Raises TooLargeError: by the first ones, all of them have no room.
    """
    size = 0
    for number, record in enumerate(records, start=1):
        size += len(record[0]) + len(record[1])
        if number == _SAMPLE:
            _require_room(table, most * size // number, folder, proves=proves)
        yield record


def _require_room(table: TableName, size: int, folder: Path, *, proves: bool) -> None:
    needed = {folder: int(size * _FILE)}
    temporary = Path(tempfile.gettempdir())
    if proves and temporary.stat().st_dev == folder.stat().st_dev:
        needed[folder] += int(size * _PROOF)
    elif proves:
        needed[temporary] = int(size * _PROOF)
    for place, file_bytes in needed.items():
        free = shutil.disk_usage(place).free
        if file_bytes + _SPARE > free:
            raise TooLargeError(
                f"the rows of {table} take about {file_bytes >> 20:,} MB in {place}, "
                f"where {free >> 20:,} MB are free"
            )
