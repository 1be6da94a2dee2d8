"""Single rows according to the log: versions, origins, and changes of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from changelog.contract.base.lsn import Lsn
from replay.api.frames import duckdb_relation, pandas_frame, python_values, texts
from replay.api.sheet import MOST_ROWS, Sheet, SheetValue

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

CHANGE_TYPE, COMMIT_LSN, COMMIT_TIME = "_change_type", "_commit_lsn", "_commit_timestamp"
"""The columns before those of the table, as Delta's change data feed names them."""
Row = Mapping[str, Any]
"""A row by column; a date or time that Python cannot hold is PostgreSQL's text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowVersion:
    """One version of a row, valid from a change on.

    Attributes:
        change: `copy`, `insert`, `update`, `delete` or `truncate`.
        lsn: of the commit.
        time: of the commit.
        row: None where it was deleted.
        partition: of its record.
        offset: of its record.
        schema_id: the schema that it was written under; None of a delete.
    """

    change: str
    lsn: Lsn
    time: datetime
    row: Row | None
    partition: int
    offset: int
    schema_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class History(SheetValue):
    """The versions of a row that are still on the log, the oldest first.

    Attributes:
        table: its name.
        key: as text by column.
        lsn: of the frontier up to which it was read.
        versions: the versions on the log.
        complete_since: every version written since then is here; of the earlier ones the last is,
            and the others may have been removed by compaction. None where the cleaner may remove
            older versions at once.
        verdict: on the state at the frontier.
    """

    table: str
    key: Mapping[str, str]
    lsn: Lsn
    versions: tuple[RowVersion, ...]
    complete_since: datetime | None
    verdict: str

    def __len__(self) -> int:
        """Return the number of versions."""
        return len(self.versions)

    def __iter__(self) -> Iterator[RowVersion]:
        """Iterate over the versions."""
        return iter(self.versions)

    def __getitem__(self, place: int) -> RowVersion:
        """Return one by its place."""
        return self.versions[place]

    def sheet(self) -> Sheet:
        """Return it as a table."""
        columns = list(
            next((version.row for version in self.versions if version.row is not None), {})
        )
        rows = [
            (
                version.change,
                str(version.lsn),
                version.time.isoformat(),
                *_cells(version.row, columns),
            )
            for version in self.versions[-MOST_ROWS:]
        ]
        since = "compaction may have removed any version but the last"
        if self.complete_since is not None:
            moment = self.complete_since.isoformat(timespec="seconds")
            since = f"complete since {moment}; compaction may have removed earlier versions"
        return Sheet(
            f"{self.table} {key_text(self.key)}: versions on the log up to LSN {self.lsn}",
            ("change", "LSN", "time", *columns),
            rows,
            notes=(since, f"verdict: {self.verdict}"),
            count=len(self.versions),
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Origin(SheetValue):
    """The origin of a row.

    Attributes:
        table: its name.
        topic: the topic of its record.
        key: as text by column.
        lsn: of the frontier at which it is the row.
        version: the record that decides.
        superseded: older records of its key that are still on the log.
        verdict: on the state at the frontier.
    """

    table: str
    topic: str
    key: Mapping[str, str]
    lsn: Lsn
    version: RowVersion
    superseded: tuple[RowVersion, ...]
    verdict: str

    def sheet(self) -> Sheet:
        """Return it as a table."""
        last = self.version
        rows = [*texts(last.row or {}).items()]
        schema = "" if last.schema_id is None else f", schema {last.schema_id}"
        notes = (
            f"by the {last.change} at LSN {last.lsn}, {last.time.isoformat()}",
            f'topic "{self.topic}", partition {last.partition}, offset {last.offset}{schema}',
            f"older records of the key that are still there: {len(self.superseded)}",
            f"verdict: {self.verdict}",
        )
        caption = f"{self.table} {key_text(self.key)} at LSN {self.lsn}"
        if last.row is None:
            caption += ": no row, it is deleted"
        return Sheet(caption, ("column", "value"), rows, notes=notes)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Changes(SheetValue):
    """The changes of a table between two frontiers, exact and complete.

    Attributes:
        table: its name.
        start: LSN of the first frontier.
        end: LSN of the second; changes of commits in `[start, end)`.
        rows: `_change_type`, `_commit_lsn`, `_commit_timestamp` and the table's columns, in the
            order of changes; an update has two rows.
    """

    table: str
    start: Lsn
    end: Lsn
    rows: pa.Table = field(compare=False)

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.rows.num_rows)

    def arrow(self) -> pa.Table:
        """Return the rows as a table of Arrow."""
        return self.rows

    def pandas(self) -> pd.DataFrame:
        """Return the rows in pandas, in Arrow's types."""
        return pandas_frame(self.rows)

    def duckdb(self) -> duckdb.DuckDBPyRelation:
        """Return the rows as a relation of DuckDB."""
        return duckdb_relation(self.rows)

    def sheet(self) -> Sheet:
        """Return the first rows as a table."""
        names = self.rows.column_names
        shown = self.rows.slice(0, MOST_ROWS)
        rows = [[*texts(row).values()] for row in rows_of(shown)]
        caption = f"{self.table}: changes from LSN {self.start} to LSN {self.end}"
        return Sheet(caption, names, rows, count=len(self))


def rows_of(table: pa.Table) -> list[Row]:
    """Return the rows of a table as values of Python."""
    columns = [python_values(column) for column in table.columns]
    names = table.column_names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def key_text(key: Mapping[str, str]) -> str:
    """Return a key as one line of text."""
    return ", ".join(f"{name} = {value}" for name, value in key.items())


def _cells(row: Row | None, columns: Sequence[str]) -> list[str]:
    return [""] * len(columns) if row is None else [*texts(row).values()]
