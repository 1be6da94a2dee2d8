"""Reads and publishes the Delta tables of one view through deltalake.

Publishing is one commit on the view's stable table that removes the files of the earlier generation
and adds those of the next, by their paths relative to the table. No row is read or copied, and a
Delta commit is atomic: a reader sees the old file list or the new one. The commit also has schema
and protocol, so generations may differ in columns and in the table features that they need.

deltalake writes these commits, except those that it cannot: of tables with deletion vectors, which
it only reads, and those that change the partition columns (`views.sinks.delta.commits`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import create_table_with_add_actions
from obstore.exceptions import BaseError
from pyroaring import BitMap64

from changelog.contract.base.errors import SinkError
from changelog.contract.base.secret import redacted
from replay.spark.files import Files
from replay.spark.object_store import silence
from replay.spark.warehouse import SETTINGS, adding_counted, is_plain, paths_of
from views.sinks.base import ForeignTableError, UnavailableSinkError
from views.sinks.delta.commits import (
    Action,
    Commits,
    DataFile,
    adding,
    description_actions,
    path_of,
    removing,
)
from views.sinks.delta.deletion_vectors import FEATURE, VectorError, file_name, unpacked

log = logging.getLogger("changelog.views")

_SEALED = re.compile(r"sealed, (\d+) rows")
_GENERATION = re.compile(r"generation (\d+)")
_CHECKPOINT_EVERY = 10
"""Commits of a stable table between checkpoints of its log, as in Delta's own writers."""


class DeltaTables:
    """Access to Delta tables by URI."""

    def table(self, uri: str) -> DeltaTable | None:
        """Open a table; return None if there is none."""
        with sink_errors(uri):
            try:
                return DeltaTable(uri)
            except TableNotFoundError:
                return None

    def published(self, stable: str) -> int | None:
        """Return the generation that a stable table serves.

        Raises ForeignTableError: the table was not published by this program; SinkError: it cannot
        be read.
        """
        table = self.table(stable)
        if table is None:
            return None
        match = _GENERATION.fullmatch(table.metadata().description or "")
        if match is None:
            raise ForeignTableError(
                f"{stable} is a Delta table that was not published from here",
                hint="move it away, or give the view another name",
            )
        return int(match[1])

    def sealed_rows(self, uri: str) -> int | None:
        """Return the number of rows of a sealed generation; None if it is missing or not sealed."""
        table = self.table(uri)
        match = table and _SEALED.fullmatch(table.metadata().description or "")
        return int(match[1]) if match else None

    def seal(self, uri: str, rows: int) -> None:
        """Mark a generation as complete, in one commit."""
        with sink_errors(uri):
            _present(self.table(uri), uri).alter.set_table_description(f"sealed, {rows} rows")

    def seal_changed(self, uri: str, files: Sequence[DataFile], rows: int) -> None:
        """Add these files to a table, and mark it as complete, in one commit."""
        with sink_errors(uri):
            table = _present(self.table(uri), uri)
            actions = description_actions(
                table,
                name="",
                description=f"sealed, {rows} rows",
                configuration={},
                vectors=True,
            )
            self._commits(uri).commit(table.version() + 1, [*actions, *map(adding, files)])

    def files(self, uri: str) -> list[DataFile]:
        """List a generation's files."""
        table = _present(self.table(uri), uri)
        with sink_errors(uri):
            is_sealed = _SEALED.fullmatch(table.metadata().description or "")
            # A sealed generation with vectors has them from us, so their form is known.
            if not (is_plain(table) or (_has_vectors(table) and is_sealed)):
                protocol = table.protocol()
                features = protocol.reader_features or ()
                raise SinkError(
                    f"{uri} needs Delta reader version {protocol.min_reader_version} with "
                    f"{', '.join(sorted(features)) or 'column mapping'}, which some readers lack",
                    hint="unset spark.databricks.delta.properties.defaults.* in the Spark session",
                )
            return self._commits(uri).data_files()

    def vectors(self, uri: str, files: Sequence[DataFile]) -> dict[str, BitMap64]:
        """Read the deletion vectors of a generation's files."""
        marked = {file.path: file.vector for file in files if file.vector is not None}
        with sink_errors(uri):
            data = {
                identity: Files().read(f"{uri}/{file_name(identity)}")
                for identity in {vector.identity for vector in marked.values()}
            }
            return {path: unpacked(data[at.identity], at) for path, at in marked.items()}

    def publish(self, stable: str, generation: int, uri: str, folder: str, name: str) -> None:
        """Make the stable table consist of a generation's files.

        `stable`: URI of the table that readers open. `uri`: of the generation. `folder`: the
        generation's path relative to the stable table.
        """
        files, table = self.files(uri), _present(self.table(uri), uri)
        description = f"generation {generation}"
        with sink_errors(stable):
            before = self.table(stable)
            is_marked = any(file.vector is not None for file in files)
            columns = list(table.metadata().partition_columns)
            needs_ours = is_marked or bool(columns)
            if before is not None and (needs_ours or _is_beyond_deltalake(before)):
                about = description_actions(
                    table,
                    name=name,
                    description=description,
                    configuration=SETTINGS,
                    vectors=is_marked,
                )
                here = [adding(file, f"{folder}/") for file in files]
                self._replace(stable, before, [*about, *here])
                return
            adds = [
                adding_counted(
                    f"{folder}/{file.path}",
                    file.size,
                    file.stored,
                    partition=file.partition,
                    bounds=file.bounds,
                )
                for file in files
            ]
            create_table_with_add_actions(
                stable,
                table.schema(),
                adds,
                mode="overwrite",
                partition_by=columns or None,
                name=name,
                description=description,
                configuration=SETTINGS,
            )

    def _replace(self, stable: str, before: DeltaTable, actions: Sequence[Action]) -> None:
        """Publish a table that has, or had, partitions or deletion vectors."""
        commits, version = self._commits(stable), before.version() + 1
        adds = commits.adds()
        if sorted(map(path_of, adds)) != sorted(paths_of(before)):
            raise SinkError(
                f"the last commits of {stable} do not list all of its files",
                hint=f"remove {stable}/_delta_log and run it again; readers see no table meanwhile",
            )
        commits.commit(version, [*map(removing, adds), *actions])
        if version % _CHECKPOINT_EVERY == 0:
            self._write_checkpoint(stable)

    def _write_checkpoint(self, stable: str) -> None:
        """Write a checkpoint of a table's log; without one the table is only slower to open."""
        try:
            table = _present(self.table(stable), stable)
            table.create_checkpoint()
            table.cleanup_metadata()
        except (DeltaError, OSError) as error:
            log.warning("the log of %s has no new checkpoint: %s", stable, error)

    def _commits(self, uri: str) -> Commits:
        return Commits(Files(), uri)

    def distinct(self, uri: str, columns: list[str]) -> tuple[int, int]:
        """Count a table's distinct keys and its rows with a null in the key, in this process."""
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


def _has_vectors(table: DeltaTable) -> bool:
    return FEATURE in (table.protocol().reader_features or ())


def _is_beyond_deltalake(table: DeltaTable) -> bool:
    """Tell whether deltalake cannot replace a table: because of vectors or partition columns."""
    return _has_vectors(table) or bool(table.metadata().partition_columns)


def _present(table: DeltaTable | None, uri: str) -> DeltaTable:
    if table is None:
        raise SinkError(f"there is no Delta table at {uri}")
    return table


@contextmanager
def sink_errors(uri: str) -> Iterator[None]:
    """Turn errors of deltalake and the disk into a SinkError that names the table."""
    try:
        yield
    except TableNotFoundError:
        raise
    except (DeltaError, BaseError, VectorError, OSError) as error:
        raise failed(uri, str(error)) from error


def failed(uri: str, text: str) -> SinkError:
    """Return the SinkError for another error's text about a table."""
    if (silent := silence(uri, text)) is not None:
        return UnavailableSinkError(silent, hint="see that it runs, then run it again")
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return SinkError(
            f"no space left on the disk while writing {uri}",
            hint="free space under the warehouse and in Spark's scratch folder, then run it again",
        )
    if "Permission denied" in text or "Read-only file" in text:
        return SinkError(f"{uri} cannot be written: {text[:200]}", hint="see who owns the folder")
    line = next((line for line in text.splitlines() if line.strip()), "no message")
    return SinkError(f"{uri}: {redacted(line)[:500]}")
