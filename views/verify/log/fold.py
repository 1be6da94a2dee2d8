"""Records to state, in SQL: the last record of each key, and only then whether it is a tombstone.

An aggregate that skips nulls (`arg_max(value, position)`) would revive deleted rows, so the
record is chosen without looking at its value. The window sees only keys and positions; the
values, the wide part, are joined back afterwards.
"""

from __future__ import annotations

import duckdb

from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from views.verify.log.read import NO_EPOCH
from views.verify.processes.scratch import row_count
from views.verify.values.types import quoted


def fold(
    database: duckdb.DuckDBPyConnection,
    raw: str,
    survivors: str,
    *,
    epoch: int,
    since: Position | None = None,
    before: Lsn | None = None,
) -> int:
    """Fold the records of table `raw` into a new table `survivors` (part, off, key, value).

    Args:
        database: holds both tables.
        raw: what `read_topic` made.
        survivors: name of the new table.
        epoch: the frontier's; `before` counts in it, records of older epochs all count.
        since: records before this position are dead; None when there are none.
        before: only transactions whose commit LSN is before it; None for all.

    Returns:
        The number of rows that are alive, and of records without a place that decide about one.
    """
    start = since or Position(0, Lsn(0), 0)
    limit = None if before is None else int(before)
    database.execute(
        f"""
        CREATE OR REPLACE TABLE {quoted(survivors)} AS
        WITH last AS (
            SELECT part, off
            FROM {quoted(raw)}
            WHERE (epoch, commit_lsn, sequence) >= (?::UINTEGER, ?::UBIGINT, ?::UBIGINT)
              AND (epoch < ? OR ?::UBIGINT IS NULL OR commit_lsn < ?::UBIGINT)
            QUALIFY row_number() OVER (
                PARTITION BY key ORDER BY epoch DESC, commit_lsn DESC, sequence DESC, off DESC
            ) = 1
        )
        SELECT part, off, key, value FROM {quoted(raw)} JOIN last USING (part, off)
        WHERE value IS NOT NULL OR epoch = ?
        """,
        [*map(int, start), epoch, limit, limit, NO_EPOCH],
    )
    return row_count(database, survivors)
