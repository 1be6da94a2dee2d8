"""The layout of a Delta table's files: partitions, and bounds that let readers skip files.

A partition's folder is named by a digest and not by its values: the log has these, and it can hold
any text, while a file name is limited in length and alphabet, and readers escape characters in
different ways. Pure.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

_INTEGERS = (ByteType, ShortType, IntegerType, LongType)
_EPOCH = dt.date(1970, 1, 1).toordinal()
_LONGEST_TEXT = 64
"""Longer texts are not written as bounds: they would be most of the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The layout of one table's files."""

    schema: StructType  # of the table, with its partition columns, which its files do not have
    # the column of the rows that names a partition's folder; empty without partitions
    folder: str = ""
    columns: tuple[str, ...] = ()  # the partition columns
    # for each folder the texts of its values, None for a null
    partitions: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    bounded: tuple[str, ...] = ()  # the columns that the rows are ordered by, which get bounds

    def partition_of(self, path: str) -> dict[str, str | None]:
        """Return the texts of the partition columns in a file, by its path in the table."""
        if not self.columns:
            return {}
        name = path.partition("/")[0].removeprefix(f"{self.folder}=")
        return dict(zip(self.columns, self.partitions[name], strict=True))

    def bounds_of(self, footer: pq.FileMetaData) -> dict[str, Any]:
        """Return the least and the greatest value of each bounded column, in Delta's form.

        A column whose bounds are not known exactly, or have no exact form there, is left out.
        """
        lows: dict[str, Any] = {}
        highs: dict[str, Any] = {}
        nulls: dict[str, int] = {}
        for name in self.bounded:
            bounds = _bounds(footer, name, self.schema[name].dataType)
            if bounds is not None:
                lows[name], highs[name], nulls[name] = bounds
        return {"minValues": lows, "maxValues": highs, "nullCount": nulls} if lows else {}


def _bounds(footer: pq.FileMetaData, name: str, kind: DataType) -> tuple[Any, Any, int] | None:
    """Return the least and greatest value of a column and its nulls, None if not all are known."""
    places = [
        number
        for number in range(footer.num_columns)
        if footer.schema.column(number).path == name  # a field of a struct has a path with a dot
    ]
    if not places or not isinstance(kind, (*_INTEGERS, DateType, StringType)):
        return None
    groups = [footer.row_group(n) for n in range(footer.num_row_groups)]
    statistics = [group.column(places[0]).statistics for group in groups if group.num_rows]
    if not statistics or any(part is None or not part.has_null_count for part in statistics):
        return None
    nulls = sum(part.null_count for part in statistics)
    valued = [part for part in statistics if part.num_values]
    if not valued or not all(part.has_min_max for part in valued):
        return None
    is_text = isinstance(kind, StringType)
    lows = [part.min if is_text else part.min_raw for part in valued]
    highs = [part.max if is_text else part.max_raw for part in valued]
    bounds = _bound(min(lows), kind), _bound(max(highs), kind)
    return None if None in bounds else (*bounds, nulls)


def _bound(value: Any, kind: DataType) -> Any:  # noqa: ANN401 - JSON
    """Return a bound as Delta's log has it, None when it cannot be one."""
    if isinstance(kind, DateType):
        ordinal = value + _EPOCH
        is_dated = dt.date.min.toordinal() <= ordinal <= dt.date.max.toordinal()
        return dt.date.fromordinal(ordinal).isoformat() if is_dated else None
    if isinstance(kind, StringType):
        return value if isinstance(value, str) and len(value) <= _LONGEST_TEXT else None
    return int(value)
