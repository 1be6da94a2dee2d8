"""Reads the rows of one data file of an Iceberg table, a few at a time.

pyiceberg's own stream reads all files at once and holds their rows in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from changelog.contract.base.errors import SinkError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table

_LAST_OF_MICROS = 2
"""The last version of the format whose moments are of microseconds, whatever files have."""
_BUFFER_BYTES = 1 << 20
_BATCH_BYTES = 8 << 20
_BATCH_ROWS = 65_536


def with_ends(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows whose least dates and timestamps, `-infinity` to Spark, are DuckDB's.

    That is the number after the least, which a column of Spark does not have.
    """
    import pyarrow as pa  # noqa: PLC0415 - an extra
    import pyarrow.compute as pc  # noqa: PLC0415 - likewise

    for place, column in enumerate(batch.columns):
        if pa.types.is_date32(column.type):
            numbers, least = column.view(pa.int32()), -(2**31)
        elif pa.types.is_timestamp(column.type):
            numbers, least = column.view(pa.int64()), -(2**63)
        else:
            continue
        low = pa.scalar(least, numbers.type)
        if pc.any(pc.equal(numbers, low)).as_py():
            moved = pc.if_else(pc.equal(numbers, low), pa.scalar(least + 1, numbers.type), numbers)
            batch = batch.set_column(place, batch.schema.field(place), moved.view(column.type))
    return batch


def read_file(
    table: Table, schema: Schema, task: FileScanTask, gone: list[pa.ChunkedArray]
) -> Iterator[pa.RecordBatch]:
    """Return the rows of one file in a schema of the table, leaving out some places.

    Raises SinkError: the file has not the rows that it was written with.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415 - an extra
    from pyiceberg.io.pyarrow import (  # noqa: PLC0415 - likewise
        _combine_positional_deletes,
        _get_column_projection_values,
        _to_requested_schema,
        pyarrow_to_schema,
    )

    metadata = table.metadata
    is_micros = metadata.format_version <= _LAST_OF_MICROS
    with (
        table.io.new_input(task.file.file_path).open() as stream,
        pq.ParquetFile(stream, buffer_size=_BUFFER_BYTES) as file,
    ):
        own_schema = pyarrow_to_schema(
            file.schema_arrow,
            metadata.name_mapping(),
            downcast_ns_timestamp_to_us=is_micros,
            format_version=metadata.format_version,
        )
        spec = metadata.specs().get(task.file.spec_id)
        absent = _get_column_projection_values(
            task.file, schema, schema, spec, own_schema.field_ids
        )
        groups = [file.metadata.row_group(n) for n in range(file.metadata.num_row_groups)]
        row_bytes = max(
            (group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0
        )
        start = 0
        for read in file.iter_batches(min(_BATCH_BYTES // max(row_bytes, 1) + 1, _BATCH_ROWS)):
            end = start + len(read)
            batch = read.take(_combine_positional_deletes(gone, start, end)) if gone else read
            start = end
            yield _to_requested_schema(
                schema,
                own_schema,
                batch,
                downcast_ns_timestamp_to_us=is_micros,
                projected_missing_fields=absent,
                allow_timestamp_tz_mismatch=True,
            )
    if start != task.file.record_count:
        raise SinkError(
            f"the file {task.file.file_path} has {start:,} rows, and the table says "
            f"{task.file.record_count:,}: it was altered after it was written"
        )
