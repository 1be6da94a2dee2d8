"""Sorts rows into partitions and files as a view's options say.

The rows are computed once and kept while the partitions, the rows, and the bytes of Parquet per row
are counted. Then they are sorted by ranges, so that a file has rows of one partition, ordered by
the columns of `cluster_by`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import DateType

from changelog.contract.base.errors import SinkError
from replay.store.layout import Layout
from views.sinks.delta.options import DeltaOptions
from views.sinks.unique import column

MOST_PARTITIONS = 10_000
"""Partitions of one table: their values are sent to the driver, and each has a file at least."""
_SAMPLE = 20_000
"""Rows whose size in Parquet is measured."""
_MB = 1 << 20
_DIGITS = 32
"""Hexadecimal digits of a partition's digest, enough that no two are equal by chance."""
_ROWS = "rows of it"
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
"""The folder's name that readers of Hive's layout take for null."""


@contextmanager
def arranged(
    view: str, rows: DataFrame, options: DeltaOptions, key: Sequence[str]
) -> Iterator[tuple[DataFrame, Layout]]:
    """Yield the rows in the order of their files, and the layout of the files.

    Raises SinkError: there are too many partitions, or a Delta table cannot hold the value of one.
    """
    folder = _free_name(rows.columns) if options.partition_by else ""
    named = rows.withColumn(folder, _digest(options.partition_by)) if folder else rows
    is_kept = rows.storageLevel != StorageLevel.NONE  # by the caller, who needs them afterwards
    if not is_kept:
        rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        partitions, count = _survey(view, named, folder, options.partition_by)
        order = [*([folder] if folder else []), *_ordered(options, key)]
        files = _files(rows, count, options.target_file_mb * _MB)
        names = [name for name in named.columns if name not in options.partition_by]
        ranged = named.repartitionByRange(files, *map(column, order))
        yield (
            ranged.sortWithinPartitions(*map(column, order)).select(*map(column, names)),
            Layout(
                schema=rows.schema,
                folder=folder,
                columns=options.partition_by,
                partitions=partitions,
                bounded=tuple(_ordered(options, key)),
            ),
        )
    finally:
        if not is_kept:
            rows.unpersist()


def _ordered(options: DeltaOptions, key: Sequence[str]) -> list[str]:
    """Return the columns by which the rows of a partition are sorted, ending with the key."""
    return list(
        dict.fromkeys((*options.cluster_by, *(n for n in key if n not in options.partition_by)))
    )


def _free_name(columns: Sequence[str]) -> str:
    """Return a name for the partition column that no other column has."""
    name, used = "p", {column.lower() for column in columns}
    while name in used:
        name += "p"
    return name


def _digest(columns: Sequence[str]) -> Column:
    values = F.struct(*(column(name) for name in columns))
    return F.substring(F.sha2(F.to_json(values, {"ignoreNullFields": "false"}), 256), 1, _DIGITS)


def _survey(
    view: str, named: DataFrame, folder: str, columns: Sequence[str]
) -> tuple[dict[str, tuple[str | None, ...]], int]:
    """Return the values of each partition, by its folder, and the number of rows."""
    if not folder:
        return {}, named.count()
    by = [column(folder), *map(column, columns)]
    groups = named.groupBy(*by).agg(F.count(F.lit(1)).alias(_ROWS)).limit(MOST_PARTITIONS + 1)
    texts = [column(name).cast("string").alias(name) for name in columns]
    folders = [tuple(row) for row in groups.select(column(folder), column(_ROWS), *texts).collect()]
    if len(folders) > MOST_PARTITIONS:
        raise SinkError(
            f"{view}.delta.json: partition_by: {', '.join(columns)} have more than "
            f"{MOST_PARTITIONS:,} values",
            hint="partition by fewer or coarser values, or name the columns under cluster_by",
        )
    kinds = [named.schema[name].dataType for name in columns]
    for _, _, *values in folders:
        for name, kind, text in zip(columns, kinds, values, strict=True):
            _check(view, name, text, is_date=isinstance(kind, DateType))
    return {name: tuple(values) for name, _, *values in folders}, sum(
        rows for _, rows, *_ in folders
    )


def _check(view: str, name: str, text: str | None, *, is_date: bool) -> None:
    """Refuse a value that Delta or a reader would confuse with a different value."""
    if text == "":
        why = "an empty text, which Delta cannot tell from null"
    elif text == _HIVE_NULL:
        why = f"{_HIVE_NULL}, which readers take for null"
    elif text is not None and is_date and _DATE.fullmatch(text) is None:
        why = f"the date {text}, which is outside the years 1 to 9999"
    else:
        return
    raise SinkError(
        f'{view}.delta.json: partition_by: "{name}" holds {why}',
        hint="partition by a column of the view that writes it differently, or name the column "
        "under cluster_by",
    )


def _files(rows: DataFrame, count: int, target_bytes: int) -> int:
    """Return the number of files of about this size for the rows."""
    named = rows.select(*(column(name).alias(f"c{n}") for n, name in enumerate(rows.columns)))
    sizes = named.limit(_SAMPLE).mapInArrow(_measure, "seen bigint, bytes bigint").collect()
    seen, size = sum(sample.seen for sample in sizes), sum(sample.bytes for sample in sizes)
    return max(1, round(count * size / seen / target_bytes)) if seen else 1


def _measure(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write rows as Parquet to memory, and yield their number and size."""
    filled = [batch for batch in batches if batch.num_rows]
    if filled:
        table, sink = pa.Table.from_batches(filled), pa.BufferOutputStream()
        pq.write_table(table, sink, compression="snappy")
        measured = {"seen": [table.num_rows], "bytes": [sink.getvalue().size]}
        yield pa.RecordBatch.from_pydict(
            measured, schema=pa.schema([("seen", pa.int64()), ("bytes", pa.int64())])
        )
