"""Delta tables of one view as deltalake sees them: what is committed, and the publishing commit.

Publishing is one commit on the view's stable table that removes the files of the generation before
and adds those of the next, by their paths relative to the table. No row is read or copied, and a
Delta commit is atomic: a reader has the old file list or the new one. Schema and protocol go with
the commit, so generations may differ in columns and in the table features that they need.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, create_table_with_add_actions

from changelog.contract.errors import SinkError
from changelog.contract.secret import redacted
from replay.warehouse import SETTINGS, is_plain

_SEALED = re.compile(r"sealed, (\d+) rows")
_GENERATION = re.compile(r"generation (\d+)")


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a generation, its path relative to the generation's folder."""

    path: str
    size: int
    rows: int


@dataclass(frozen=True, slots=True)
class DeltaTables:
    """Access to Delta tables by URI.

    Attributes:
        storage_options: what deltalake needs to reach them.
    """

    storage_options: Mapping[str, str]

    def table(self, uri: str) -> DeltaTable | None:
        """Open a table, or give None when there is none."""
        with sink_errors(uri):
            try:
                return DeltaTable(uri, storage_options=dict(self.storage_options) or None)
            except TableNotFoundError:
                return None

    def published(self, stable: str) -> int | None:
        """Give the generation that a stable table serves.

        Raises:
            SinkError: the table there is not one that we published.
        """
        table = self.table(stable)
        if table is None:
            return None
        match = _GENERATION.fullmatch(table.metadata().description or "")
        if match is None:
            raise SinkError(
                f"{stable} is a Delta table that was not published from here",
                hint="move it away, or give the view another name",
            )
        return int(match[1])

    def sealed_rows(self, uri: str) -> int | None:
        """Give the rows of a sealed generation, None when it is missing or not sealed."""
        table = self.table(uri)
        match = table and _SEALED.fullmatch(table.metadata().description or "")
        return int(match[1]) if match else None

    def seal(self, uri: str, rows: int) -> None:
        """Mark a generation as whole, in one commit of its own."""
        with sink_errors(uri):
            _present(self.table(uri), uri).alter.set_table_description(f"sealed, {rows} rows")

    def files(self, uri: str) -> list[DataFile]:
        """List a generation's files.

        Raises:
            SinkError: some reader would not see the rows in them exactly.
        """
        table = _present(self.table(uri), uri)
        with sink_errors(uri):
            if not is_plain(table):
                protocol = table.protocol()
                features = protocol.reader_features or ()
                raise SinkError(
                    f"{uri} needs Delta reader version {protocol.min_reader_version} with "
                    f"{', '.join(sorted(features)) or 'column mapping'}, which some readers lack",
                    hint="unset spark.databricks.delta.properties.defaults.* in the Spark session",
                )
            # Not the bounds beside them: Python has no date for an infinite one.
            listed = pa.table(table.get_add_actions())
            adds = listed.select(["path", "size_bytes", "num_records"]).to_pylist()
        return [DataFile(add["path"], add["size_bytes"], add["num_records"]) for add in adds]

    def publish(self, stable: str, generation: int, uri: str, folder: str, name: str) -> None:
        """Let the stable table consist of the files of a generation.

        Args:
            stable: the table that readers open.
            generation: the number to serve.
            uri: the generation's own table.
            folder: that table's place relative to the stable table.
            name: the view's name.
        """
        adds = [
            AddAction(
                path=f"{folder}/{file.path}",
                size=file.size,
                partition_values={},
                modification_time=0,
                data_change=True,
                # Counts only: bounds of moments are cut to milliseconds by one writer and read
                # exactly by another, and a rebuild's files are in no useful order to skip by.
                stats=json.dumps({"numRecords": file.rows}),
            )
            for file in self.files(uri)
        ]
        with sink_errors(stable):
            create_table_with_add_actions(
                stable,
                _present(self.table(uri), uri).schema(),
                adds,
                mode="overwrite",
                name=name,
                description=f"generation {generation}",
                configuration=SETTINGS,
                storage_options=dict(self.storage_options) or None,
            )

    def distinct(self, uri: str, columns: list[str]) -> tuple[int, int]:
        """Count, in this process, the distinct keys of a table and the rows with a null in one."""
        names = ['"' + column.replace('"', '""') + '"' for column in columns]
        listed, nulls = ", ".join(names), " or ".join(f"{name} is null" for name in names)
        sql = (
            f"select (select count(*) from (select 1 from v group by {listed})) as d, "
            f"(select count(*) from v where {nulls}) as n"
        )
        with sink_errors(uri):
            engine = QueryBuilder().register("v", _present(self.table(uri), uri))
            row = pa.table(engine.execute(sql).read_all()).to_pylist()[0]
        return row["d"], row["n"]


def _present(table: DeltaTable | None, uri: str) -> DeltaTable:
    if table is None:
        raise SinkError(f"there is no Delta table at {uri}")
    return table


@contextmanager
def sink_errors(uri: str) -> Iterator[None]:
    """Turn what deltalake and the disk raise into a SinkError that names the table."""
    try:
        yield
    except TableNotFoundError:
        raise
    except (DeltaError, OSError) as error:
        raise failed(uri, str(error)) from error


def failed(uri: str, text: str) -> SinkError:
    """Give the error for a table that cannot be read or written."""
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return SinkError(
            f"no space left on the disk while writing {uri}",
            hint="free space under the warehouse and in Spark's scratch folder, then run it again",
        )
    if "Permission denied" in text or "Read-only file" in text:
        return SinkError(f"{uri} cannot be written: {text[:200]}", hint="see who owns the folder")
    line = next((line for line in text.splitlines() if line.strip()), "no message")
    return SinkError(f"{uri}: {redacted(line)[:500]}")
