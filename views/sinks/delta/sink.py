"""Serves a view as a Delta table: `{warehouse}/{view}`, readable by any Delta reader at all times.

Each generation is a Delta table of its own, `{view}/_generations/000007`, written in one commit.
Delta ignores folders that begin with `_`, so VACUUM of the stable table does not touch them.
Publishing adds the generation's files to the stable table's log (`views.sinks.delta.log`); they
stay where they are until the generation is discarded. See docs/decisions/0004-delta-publish.md.

A generation that differs little from another one can share its files: deletion vectors mark the
removed rows, and new rows are in a file of their own. Each generation still has all its files in
its own folder, as hard links or copies, and is removed like any other
(docs/decisions/0030-deletion-vectors.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession

from changelog.contract.base.errors import SinkError
from replay.spark.files import Files, can_copy, uri_of
from replay.spark.object_store import unanswered
from replay.store.committed import PATTERN, write
from replay.store.layout import Layout
from views.base.address import GENERATIONS, Address
from views.project.spec import check_view_name
from views.sinks.base import (
    Change,
    ForeignTableError,
    Opened,
    held_already,
    not_sealed,
    opened,
    refuse_published,
)
from views.sinks.delta.arrange import arranged
from views.sinks.delta.changes import SharedFiles, more_marked, positions_of, within
from views.sinks.delta.commits import DataFile
from views.sinks.delta.deletion_vectors import file_name, packed
from views.sinks.delta.log import DeltaTables, failed, sink_errors
from views.sinks.delta.options import DeltaOptions
from views.sinks.shape import check_shape
from views.sinks.unique import assert_unique

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_FOLDER = GENERATIONS.strip("/")
_REFUSED = frozenset(" ,;{}()\n\t=")
"""Characters that Delta does not store in a column's name."""
_DISK = ("No space left on device", "Disk quota exceeded", "Permission denied", "Read-only file")

MOST_KEYS = 2_000_000
"""Positions of 8 bytes that fit in the driver's memory, and keys that fit in a task's."""
MANY_FILES = 100
MANY_GONE = 4
"""With more files, or more than one removed row in so many, a generation is written as a whole."""
ROWS_A_FILE = 250_000
"""New rows in one file."""

COUNT_HERE = 2_000_000
"""Up to so many rows, keys are counted in this process: 0.05-0.2 s per million rows, instead of
0.8-1.3 s for a Spark job. With more rows Spark counts them, without keys on the driver."""


class DeltaSink:
    """A view in the warehouse."""

    def __init__(
        self,
        *,
        view: str,
        key: Sequence[str],
        warehouse: str,
        spark: SparkSession,
        options: DeltaOptions | None = None,
    ) -> None:
        self._view = check_view_name(view)
        self._key = tuple(key)
        self._spark = spark
        self._options = options or DeltaOptions()
        self._files = Files()
        self._tables = DeltaTables()
        self._stable = f"{uri_of(warehouse)}/{view}"
        self._opened: Opened | None = None
        self._shared_files: SharedFiles | None = None

    def check(self, schema: StructType) -> None:
        """Refuse names that Delta does not store, and options for missing columns."""
        check_shape(schema, self._key)
        self._options.check(self._view, schema)
        for name in schema.fieldNames():
            if _REFUSED & set(name):
                # Delta stores such names only with column mapping, see `views.sinks.delta.log`.
                raise SinkError(
                    f'column "{name}" has a character that Delta does not store in a name',
                    hint="name it with AS, without blanks and without ,;{}()=",
                )

    def open(self, generation: int, schema: StructType) -> None:
        """Begin a generation."""
        self.check(schema)
        self.published()  # refuses a table that is not ours
        with sink_errors(self._stable):
            is_held = self._files.exists(self._uri(generation))
        if is_held:
            raise held_already(self._view, generation)
        self._opened, self._shared_files = Opened(generation, schema), None

    def write(self, rows: DataFrame) -> None:
        """Write all rows of the generation, once, in one commit of the generation's table."""
        current = opened(self._opened, self._view)
        current.begin(rows)
        uri = self._uri(current.generation)
        if not self._options.lays_out:
            self._write(rows, uri)
            return
        with arranged(self._view, rows, self._options, self._key) as (ordered, layout):
            self._write(ordered, uri, layout)

    def obstacle(self, change: Change) -> str | None:
        """Return the reason why a generation cannot be written as a change of another, or None."""
        if self._options.lays_out:
            return f"{self._view}.delta.json says how its files are laid out"
        if signs := PATTERN & set(self._stable):
            return f"the path of the warehouse has a {' and a '.join(sorted(signs))} in it"
        if not can_copy(self._stable):
            return "the warehouse's storage cannot copy files by itself"
        if change.keys > MOST_KEYS:
            return f"{change.keys:,} rows are too many to be marked one by one"
        return _why_rewrite(change, self._tables.files(self._uri(change.prior)))

    def change(self, change: Change) -> None:
        """Write the generation as a change of an older one, instead of `write`.

        Raises SinkError: two rows of the older one have the same key.
        """
        current = opened(self._opened, self._view)
        current.begin(change.rows)
        prior, uri = self._uri(change.prior), self._uri(current.generation)
        files = self._tables.files(prior)
        seen = Observation()
        rows = within(change.rows, change.gone, seen).coalesce(1 + change.keys // ROWS_A_FILE)
        with ThreadPoolExecutor(1) as beside:
            schema = current.schema
            positions = beside.submit(positions_of, self._spark, prior, files, change.gone, schema)
            self._write(rows, uri)
            vectors = more_marked(
                self._tables.vectors(prior, files), positions.result(), change.keys
            )
        identity, data, places = packed(vectors)
        shared = [replace(file, vector=places.get(file.path)) for file in files]
        shared = [file for file in shared if file.rows]
        with sink_errors(uri):
            self._files.create(f"{uri}/{file_name(identity)}", data)
            for file in shared:
                names = (f"{n:06d}/{file.path}" for n in (change.prior, current.generation))
                self._files.copy(f"{self._stable}/{_FOLDER}", *names)
        self._shared_files = SharedFiles(shared, seen)

    def seal(self) -> Address:
        """End writing, and mark the generation as complete."""
        current = opened(self._opened, self._view)
        current.finished()
        uri = self._uri(current.generation)
        written = self._tables.files(uri)
        rows = sum(file.rows for file in written)
        if rows > COUNT_HERE or self._tables.distinct(uri, list(self._key)) != (rows, 0):
            assert_unique(self._spark.read.format("delta").load(uri), self._key)
        if self._shared_files is None:
            self._tables.seal(uri, rows)
        else:
            # The new rows have different keys, and no row that stays has one of them.
            self._shared_files.check(rows)
            files = [*self._shared_files.files, *written]
            self._tables.seal_changed(uri, files, sum(file.rows for file in files))
        self._opened = self._shared_files = None
        return self.address(current.generation)

    def _write(self, rows: DataFrame, uri: str, layout: Layout | None = None) -> None:
        with _spark_errors(uri), sink_errors(uri):
            write(rows, uri, layout=layout)

    def rows(self, generation: int) -> int:
        """Return the number of rows of a sealed generation."""
        rows = self._tables.sealed_rows(self._uri(generation))
        if rows is None:
            raise not_sealed(self._view, generation, self.generations())
        return rows

    def address(self, generation: int) -> Address:
        """Return the place where a sealed generation can be read."""
        self.rows(generation)
        return Address("delta", {"path": self._uri(generation)})

    def publish(self, generation: int) -> None:
        """Make the stable table serve a sealed generation, in one commit."""
        self.rows(generation)
        uri = self._uri(generation)
        self._refuse_incomplete(generation, uri)
        if generation != self.published():
            self._tables.publish(
                self._stable, generation, uri, f"{_FOLDER}/{generation:06d}", self._view
            )

    def discard(self, generation: int) -> None:
        """Remove a generation's files, its log first, so that the rest never looks complete."""
        refuse_published(self._view, generation, self.published())
        with sink_errors(self._stable):
            self._files.remove(f"{self._uri(generation)}/_delta_log")
            self._files.remove(self._uri(generation))

    def drop(self) -> None:
        """Remove the stable table's log, then the generations, then the folder if it is empty."""
        generations = f"{self._stable}/{_FOLDER}"
        try:
            self.published()
        except ForeignTableError:
            raise
        except SinkError:
            if not self._files.exists(generations):
                raise
            # A drop that was killed leaves generations and a log that cannot be read.
        with sink_errors(self._stable):
            self._files.remove(f"{self._stable}/_delta_log")
            for generation in self.generations():
                self._files.remove(f"{self._uri(generation)}/_delta_log")
            self._files.remove(generations)
            if not self._files.names(self._stable):
                self._files.remove(self._stable)

    def published(self) -> int | None:
        """Return the generation that the stable table serves."""
        return self._tables.published(self._stable)

    def generations(self) -> list[int]:
        """List the generations that have a folder."""
        with sink_errors(self._stable):
            names = self._files.names(f"{self._stable}/{_FOLDER}")
        return sorted(int(name) for name in names if name.isdecimal())

    def _refuse_incomplete(self, generation: int, uri: str) -> None:
        files = self._tables.files(uri)
        vectors = {file_name(file.vector.identity) for file in files if file.vector is not None}
        with sink_errors(uri):
            present = set(self._files.sizes(uri))
        missing = {*vectors, *(file.path for file in files)} - present
        if missing:
            raise SinkError(
                f'generation {generation} of view "{self._view}" lacks {len(missing)} of its '
                f"files, such as {min(missing)}",
                hint="another program removed them (VACUUM?); rebuild the view",
            )

    def _uri(self, generation: int) -> str:
        return f"{self._stable}/{_FOLDER}/{generation:06d}"


def _why_rewrite(change: Change, files: Sequence[DataFile]) -> str | None:
    """Return the reason why a generation is better written as a whole, or None."""
    if len(files) >= MANY_FILES:
        return f"generation {change.prior} has {len(files)} files"
    stored = sum(file.stored for file in files)
    gone = stored - sum(file.rows for file in files) + change.keys
    if gone * MANY_GONE > stored:
        return f"{gone:,} of the {stored:,} rows in its files would be gone"
    return None


@contextmanager
def _spark_errors(uri: str) -> Iterator[None]:
    """Turn errors of a disk or store that Spark writes to into a SinkError.

    Errors of the query itself pass.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        text = str(error)
        if unanswered(text) is not None:
            raise failed(uri, text) from error
        of_disk = next((reason for reason in _DISK if reason in text), None)
        if of_disk is None:
            raise
        raise failed(uri, of_disk) from error
