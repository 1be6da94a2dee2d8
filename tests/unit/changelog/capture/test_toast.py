"""Values that the stream left out: one by one, and many at once."""

from __future__ import annotations

from collections.abc import Sequence

from changelog.capture.write.toast import Toast
from changelog.contract.base.lsn import Lsn
from changelog.contract.rows.relation import UNCHANGED, KeyRow, Relation
from tests.support.builders import make_relation

RELATION = make_relation()
LACKING = (b"1", UNCHANGED)


class Table:
    """A table whose rows have the transaction that is asked for as their value."""

    def __init__(self, size: int = 1) -> None:
        self.size = size
        self.asked: list[int] = []
        self.held: list[Lsn] = []
        self.toast = Toast(self.fetch, self.held.append)

    def fetch(
        self, _: Relation, asked: Sequence[tuple[KeyRow, int]], columns: Sequence[str]
    ) -> list[tuple[tuple[bytes, ...] | None, Lsn]]:
        assert list(columns) == [RELATION.columns[1].name]
        self.asked.append(len(asked))
        return [((b"%d" % xid * self.size,) if xid else None, Lsn(xid)) for _, xid in asked]

    def completed(self, key: bytes, xid: int) -> object:
        return self.toast.completed(RELATION, (key,), LACKING, xid)


def test_what_was_read_ahead_is_not_asked_for_again():
    table = Table()
    rows = [((b"%d" % n,), LACKING, xid) for n, xid in ((1, 7), (2, 7), (1, 8), (3, 0))]
    table.toast.read_ahead(RELATION, rows)
    assert table.completed(b"1", 7) == [b"1", b"7"]
    assert table.completed(b"1", 8) == [b"1", b"8"]
    assert table.completed(b"2", 7) == [b"1", b"7"]
    assert table.completed(b"3", 0) is None
    assert table.asked == [4]
    assert table.held == [7, 8, 7, 0], "each position that a value may be newer than is held"
    assert table.completed(b"2", 9) == [b"1", b"9"], "the row as another transaction left it"
    assert table.asked == [4, 1]


def test_rows_that_are_read_at_once_are_as_many_as_their_size_allows():
    small, large = Table(), Table(1 << 20)
    for table in (small, large):
        for _ in range(8):
            count = table.toast.at_once
            rows = [((b"%d" % n,), LACKING, 7) for n in range(count)]
            table.toast.read_ahead(RELATION, rows)
    assert small.asked[0] == large.asked[0]
    assert small.asked[-1] > small.asked[0]
    assert 1 <= large.asked[-1] <= 4
