"""A view as a Delta table: `{warehouse}/{view}`, readable by any Delta reader at all times.

Each generation is a Delta table of its own, `{view}/_generations/000007`, written by Spark in one
commit. Folders that begin with `_` are no data to Delta: VACUUM of the stable table leaves them
alone. Publishing adds the generation's files to the stable table's log (`delta_log`); they stay
where they are until the generation is discarded. See docs/decisions/0004-delta-publish.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from changelog.contract.errors import SinkError
from views.address import Address
from views.sinks.base import Opened, held_already, not_sealed, opened, refuse_published
from views.sinks.delta_log import DeltaTables, failed
from views.sinks.files import Files, uri_of
from views.sinks.shape import check_shape
from views.sinks.unique import assert_unique
from views.spec import check_view_name

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_FOLDER = "_generations"
_REFUSED = frozenset(" ,;{}()\n\t=")
_MOMENTS = "spark.sql.parquet.outputTimestampType"
_NO_BOUNDS = ("delta.dataSkippingNumIndexedCols", "0")
"""Publishing takes only the counts of rows from Delta's statistics, see `delta_log`."""
_DISK = ("No space left on device", "Disk quota exceeded", "Permission denied", "Read-only file")

COUNT_HERE = 2_000_000
"""Up to so many rows the keys are counted in this process: 0.05-0.2 s a million rows against
0.8-1.3 s for a Spark job. Above, Spark counts, which holds no key on the driver."""


class DeltaSink:
    """A view in the warehouse."""

    def __init__(
        self,
        *,
        view: str,
        key: Sequence[str],
        warehouse: str,
        spark: SparkSession,
        storage_options: Mapping[str, str],
    ) -> None:
        self._view = check_view_name(view)
        self._key = tuple(key)
        self._spark = spark
        self._files = Files(storage_options)
        self._tables = DeltaTables(storage_options)
        self._stable = f"{uri_of(warehouse)}/{view}"
        self._opened: Opened | None = None

    def open(self, generation: int, schema: StructType) -> None:
        """Begin a generation."""
        check_shape(schema, self._key)
        for name in schema.fieldNames():
            if _REFUSED & set(name):
                # Delta stores such names only with column mapping, see delta_log.
                raise SinkError(
                    f'column "{name}" has a character that Delta does not store in a name',
                    hint="name it with AS, without blanks and without ,;{}()=",
                )
        self.published()  # refuses a table that is not ours
        if self._files.exists(self._uri(generation)):
            raise held_already(self._view, generation)
        self._opened = Opened(generation, schema)

    def write(self, rows: DataFrame) -> None:
        """Write all rows of the generation, once, in one commit of the generation's table."""
        current = opened(self._opened, self._view)
        current.begin(rows)
        uri = self._uri(current.generation)
        with _exact_moments(self._spark), _disk_errors(uri):
            writer = rows.write.format("delta").mode("error")
            writer.option(*_NO_BOUNDS).save(uri)

    def seal(self) -> Address:
        """End writing, and mark the generation as whole."""
        current = opened(self._opened, self._view)
        current.finished()
        uri = self._uri(current.generation)
        rows = sum(file.rows for file in self._tables.files(uri))
        if rows > COUNT_HERE or self._tables.distinct(uri, list(self._key)) != (rows, 0):
            assert_unique(self._spark.read.format("delta").load(uri), self._key)
        self._tables.seal(uri, rows)
        self._opened = None
        return self.address(current.generation)

    def rows(self, generation: int) -> int:
        """Give the number of rows of a sealed generation."""
        rows = self._tables.sealed_rows(self._uri(generation))
        if rows is None:
            raise not_sealed(self._view, generation, self.generations())
        return rows

    def address(self, generation: int) -> Address:
        """Give the place where a sealed generation can be read."""
        self.rows(generation)
        return Address("delta", {"path": self._uri(generation)})

    def publish(self, generation: int) -> None:
        """Let the stable table serve a sealed generation, in one commit."""
        self.rows(generation)
        uri = self._uri(generation)
        self._refuse_incomplete(generation, uri)
        if generation != self.published():
            self._tables.publish(
                self._stable, generation, uri, f"{_FOLDER}/{generation:06d}", self._view
            )

    def discard(self, generation: int) -> None:
        """Remove a generation's files; its log first, so that a rest never looks whole."""
        refuse_published(self._view, generation, self.published())
        self._files.remove(f"{self._uri(generation)}/_delta_log")
        self._files.remove(self._uri(generation))

    def published(self) -> int | None:
        """Give the generation that the stable table serves."""
        return self._tables.published(self._stable)

    def generations(self) -> list[int]:
        """List the generations whose folders are there."""
        names = self._files.names(f"{self._stable}/{_FOLDER}")
        return sorted(int(name) for name in names if name.isdecimal())

    def _refuse_incomplete(self, generation: int, uri: str) -> None:
        there = set(self._files.names(uri))
        missing = [file.path for file in self._tables.files(uri) if file.path not in there]
        if missing:
            raise SinkError(
                f'generation {generation} of view "{self._view}" lacks {len(missing)} of its '
                f"files, such as {missing[0]}",
                hint="something outside removed them (VACUUM?); rebuild the view",
            )

    def _uri(self, generation: int) -> str:
        return f"{self._stable}/{_FOLDER}/{generation:06d}"


@contextmanager
def _exact_moments(spark: SparkSession) -> Iterator[None]:
    """Let Parquet hold timestamps as 64 bits of microseconds while the block runs.

    Spark's default is INT96, which other readers turn to nanoseconds: moments before 1677 and
    after 2262, infinity among them, come out wrong without an error.
    """
    before = spark.conf.get(_MOMENTS)
    spark.conf.set(_MOMENTS, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.set(_MOMENTS, before or "INT96")


@contextmanager
def _disk_errors(uri: str) -> Iterator[None]:
    """Turn a disk that is full or closed to us into a SinkError; a query's own errors pass."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        text = str(error)
        found = next((reason for reason in _DISK if reason in text), None)
        if found is None:
            raise
        raise failed(uri, found) from error
