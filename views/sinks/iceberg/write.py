"""Writes a generation's data files from Spark's executors, one Parquet file per task.

Spark may run a task twice, and may take the result of either. So each attempt writes a file of its
own name, and the task's result names it: what no result names is no part of the generation, and
goes with the generation's folder. The catalogue's credentials travel inside a pickled function, so
neither the text of a plan nor Spark's settings show them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from changelog.contract.base.errors import SinkError
from changelog.contract.base.secret import redacted
from views.base.arrow_types import arrow_schema
from views.sinks.load import RESULT, reported, require_success
from views.sinks.rendering import check_session

_GROUP_BYTES = 64 << 20
_GROUP_ROWS = 1 << 20
"""Rows and their bytes in memory that a group of a file has at most."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """One data file of a generation."""

    path: str
    size: int  # in bytes
    rows: int


@dataclass(frozen=True, slots=True)
class FileAccess:
    """Access to the files of a table; sent to executors."""

    place: str  # the table's location
    properties: Mapping[str, str] = field(repr=False)  # of pyiceberg, with secrets

    def opened(self) -> FileIO:
        """Return pyiceberg's access."""
        return load_file_io(dict(self.properties), self.place)


@dataclass(frozen=True, slots=True)
class FileWriter:
    """Writes one file from the rows of a task; sent to executors."""

    access: FileAccess
    folder: str  # of the generation's files
    schema: str  # of the generation, the JSON of Iceberg

    def write(self, batches: Iterable[pa.RecordBatch]) -> WrittenFile | None:
        """Write all rows to a new file, or none if there are no rows.

        Raises SinkError: the file cannot be written.
        """
        full = (batch for batch in batches if batch.num_rows)
        first = next(full, None)
        if first is None:
            return None
        columns = schema_to_pyarrow(Schema.model_validate_json(self.schema))
        path, rows = f"{self.folder}/{uuid.uuid4()}.parquet", 0
        try:
            output = self.access.opened().new_output(path)
            with (
                output.create() as stream,
                pq.ParquetWriter(stream, columns, compression="zstd") as file,
            ):
                for group in _groups(first, full):
                    table = pa.table(
                        [
                            array.cast(own.type)
                            for array, own in zip(group.columns, columns, strict=True)
                        ],
                        schema=columns,
                    )
                    file.write_table(table, row_group_size=max(len(table), 1))
                    rows += len(table)
            return WrittenFile(path, len(output.to_input_file()), rows)
        except (OSError, ValueError) as error:
            raise SinkError(f"{path} cannot be written: {_line(error)}") from error


def _groups(first: pa.RecordBatch, others: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of batches in groups of about one size."""
    group, size, rows = [first], first.nbytes, first.num_rows
    for batch in others:
        if size >= _GROUP_BYTES or rows >= _GROUP_ROWS:
            yield pa.Table.from_batches(group)
            group, size, rows = [], 0, 0
        group.append(batch)
        size, rows = size + batch.nbytes, rows + batch.num_rows
    yield pa.Table.from_batches(group)


def load(rows: DataFrame, writer: FileWriter) -> list[WrittenFile]:
    """Write every row; return the files that count.

    Raises SinkError: a task could not write; the first reason is given.
    """
    check_session(rows.sparkSession)
    results = rows.mapInArrow(_task(writer), f"{RESULT}, path string, bytes bigint").collect()
    for result in results:
        require_success(result)
    return [
        WrittenFile(result.path, result.bytes, result.written)
        for result in results
        if result.path is not None
    ]


def _task(
    writer: FileWriter,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        file: WrittenFile | None = None

        def written() -> int:
            nonlocal file
            file = writer.write(batches)
            return file.rows if file else 0

        report = reported(written)
        report = report.append_column("path", pa.array([file and file.path], pa.string()))
        yield report.append_column("bytes", pa.array([file and file.size], pa.int64()))

    return run


def keys_in(
    spark: SparkSession, access: FileAccess, files: Sequence[WrittenFile], key: StructType
) -> DataFrame:
    """Return the keys of all rows in some files, as tasks read them there."""
    paths = spark.createDataFrame([(file.path,) for file in files], "path string")
    return paths.repartition(len(files)).mapInArrow(_key_reader(access, key), key)


def _key_reader(
    access: FileAccess, key: StructType
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    columns = arrow_schema(key)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = access.opened()
        for path in (path for batch in batches for path in batch["path"].to_pylist()):
            with files.new_input(path).open() as stream, pq.ParquetFile(stream) as file:
                for batch in file.iter_batches(columns=columns.names):
                    yield pa.RecordBatch.from_arrays(
                        [batch[own.name].cast(own.type) for own in columns], schema=columns
                    )

    return run


def _line(error: Exception) -> str:
    return " ".join(redacted(str(error)).split())[:500] or type(error).__name__
