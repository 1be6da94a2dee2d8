"""Rows as the batch encoder gets them, and what it makes of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from changelog.native import BatchCodec, Records, Run, Texts
from changelog.native.records import Record, Transaction

OPEN = Transaction(commit_lsn=500, ts_us=600, xid=7)
SEQUENCE, STEP = 40, 4

_ESCAPED = re.compile(rb"[\b\f\n\r\t\v\\]")
_LETTERS = {8: b"b", 12: b"f", 10: b"n", 13: b"r", 9: b"t", 11: b"v", 92: b"\\"}


def line_of(row: Sequence[bytes | None]) -> bytes:
    """Write a row as COPY does, without the line feed."""
    return b"\t".join(
        b"\\N" if each is None else _ESCAPED.sub(lambda m: b"\\" + _LETTERS[m[0][0]], each)
        for each in row
    )


def lines_encoded(codec: BatchCodec, lines: Sequence[bytes]) -> list[Record | None]:
    """Encode lines of a snapshot; None stands for one that is out of the ordinary."""
    texts, records = Texts(lines), Records(1)
    found: list[Record | None] = []
    while len(found) < len(lines):
        odd = codec.add_lines(texts, len(found), lsn=9, sequence=100, ts_us=8, to=records)
        found += records
        records.clear()
        if odd is not None:
            assert odd == len(found)
            found.append(None)
    return found


def messages_encoded(codec: BatchCodec, payloads: Sequence[bytes]) -> list[Record | None]:
    """Encode row messages of one table; None stands for one that is out of the ordinary."""
    texts, records, run = Texts(payloads), Records(1), Run()
    assert run.scan(texts, 0, len(texts), before=OPEN, sequence=SEQUENCE, step=STEP)
    (seen,) = run.relations()
    found: list[Record | None] = []
    place = seen.first
    while place >= 0:
        odd = codec.add_rows(texts, run, place, records)
        found += records
        records.clear()
        if odd is None:
            break
        found.append(None)
        place = run.row(odd).next
    return found


def known(found: Sequence[Record | None]) -> Iterator[Record]:
    """Return records none of which is out of the ordinary."""
    for each in found:
        assert each is not None, "a row that the batch encoder should know"
        yield each
