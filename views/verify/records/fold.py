"""Records to state, in SQL: the last record of each key, and only then whether it is a tombstone.

An aggregate that skips nulls (`arg_max(value, position)`) would revive deleted rows, so the record
is chosen by its number without looking at its value. DuckDB sees only keys and positions; the
values, the wide part, are taken afterwards. A bucket of keys is folded by itself, and one that is
large in pieces: what is left of some goes with the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.native.columns import NO_EPOCH

_PIECE_BYTES = 96 << 20
_SURVIVOR = ["part", "off", "key", "value"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldRules:
    """The rules by which records count.

    Attributes:
        epoch: the frontier's; `before` counts in it, records of older epochs all count.
        since: records before this position are dead; None when there are none.
        before: only transactions whose commit LSN is before it; None for all.
        tells_deleted: whether tombstones that decide are among the survivors.
    """

    epoch: int
    since: Position | None = None
    before: Lsn | None = None
    tells_deleted: bool = False


def fold(
    database: duckdb.DuckDBPyConnection, tables: Iterable[pa.Table], rules: FoldRules
) -> pa.Table:
    """Return the rows that are alive, and the records without a place that decide about one.

    Tombstones are among them where the rules say so.

    Args:
        database: where it is computed.
        tables: all records of some keys, as `changelog.native` has them.
        rules: which of them count.
    """
    last = None
    for piece in _pieces(tables):
        records = piece if last is None else pa.concat_tables([last, piece])
        last = _last(database, records.combine_chunks(), rules)
    if last is None:
        return pa.table({name: [] for name in _SURVIVOR})
    if rules.tells_deleted:
        return last.select(_SURVIVOR)
    is_there = last["value"].is_valid().to_numpy() | (last["epoch"].to_numpy() == NO_EPOCH)
    return last.select(_SURVIVOR).filter(pa.array(is_there))


def _pieces(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    piece: list[pa.Table] = []
    size = 0
    for table in tables:
        if piece and size + table.nbytes > _PIECE_BYTES:
            yield pa.concat_tables(piece)
            piece, size = [], 0
        piece.append(table)
        size += table.nbytes
    if piece:
        yield pa.concat_tables(piece)


def _last(database: duckdb.DuckDBPyConnection, records: pa.Table, rules: FoldRules) -> pa.Table:
    """Return the last record of each key, tombstones too."""
    start = rules.since or Position(0, Lsn(0), 0)
    limit = None if rules.before is None else int(rules.before)
    narrow = records.drop_columns(["value", "fault", "part"])
    numbers = pa.array(np.arange(len(records)))
    database.register("records", narrow.append_column("number", numbers))
    last = database.execute(
        """
        SELECT arg_max(number, {e: epoch, l: commit_lsn, s: sequence, o: off}) AS number
        FROM records
        WHERE (epoch, commit_lsn, sequence) >= (?::UINTEGER, ?::UBIGINT, ?::UBIGINT)
          AND (epoch < ? OR ?::UBIGINT IS NULL OR commit_lsn < ?::UBIGINT)
        GROUP BY key
        """,
        [*map(int, start), rules.epoch, limit, limit],
    ).fetchnumpy()["number"]
    database.unregister("records")
    return records.take(pa.array(np.sort(last)))
