"""Options of a view's Delta table: `views/NAME.delta.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field
from pyspark.sql.types import BooleanType, DataType, DateType, StructType

from changelog.contract.base.errors import ConfigurationError, SinkError
from views.sinks.options import Options, read_options
from views.sinks.shape import INTEGERS, SCALARS, TEXTS

MOST_COLUMNS = 4
"""Partition columns of one table."""
_KINDS: Mapping[str, tuple[tuple[type[DataType], ...], str]] = {
    "partition_by": (
        (*TEXTS, *INTEGERS, BooleanType, DateType),
        (
            "floats, decimals, binary values, timestamps and nested columns have no text in a "
            "table's log that all readers read as the same value"
        ),
    ),
    "cluster_by": (SCALARS, "nested columns have no order in a file"),
}
"""The types that columns of each option may have, and why others may not."""


class DeltaOptions(Options):
    """Options of one view."""

    # columns of which all rows of a file have the same values
    partition_by: tuple[str, ...] = Field(default=(), strict=False)
    # columns by which rows are sorted, across files and in each file
    cluster_by: tuple[str, ...] = Field(default=(), strict=False)
    target_file_mb: int = Field(default=128, ge=1)  # about the size of a file

    @property
    def lays_out(self) -> bool:
        """Tell whether rows must be sorted into files."""
        return bool(self.model_fields_set)

    def check(self, view: str, schema: StructType) -> None:
        """Raise if an option names a column that does not exist or has the wrong type."""
        columns = {"partition_by": self.partition_by, "cluster_by": self.cluster_by}
        for option, (kinds, why) in _KINDS.items():
            for name in columns[option]:
                place = f'{view}.delta.json: {option}: "{name}"'
                if name not in schema.fieldNames():
                    raise SinkError(
                        f"{place} is not a column of the view",
                        hint=f"its columns are {', '.join(schema.fieldNames())}",
                    )
                kind = schema[name].dataType
                if not isinstance(kind, kinds):
                    raise SinkError(
                        f"{place} is of type {kind.simpleString()}; {why}",
                        hint="take another column, or make one in the view with a cast",
                    )


def delta_options(view: str, options: Mapping[str, Any], key: Sequence[str]) -> DeltaOptions:
    """Return the options of a view.

    Raises ConfigurationError: one is not known or has a wrong value, or they do not go together.
    """
    parsed = read_options(DeltaOptions, view, "delta", options)
    columns = [*parsed.partition_by, *parsed.cluster_by]
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise _refused(
            view,
            f'"{twice}" is named twice',
            "name each column once, under partition_by or cluster_by",
        )
    if len(parsed.partition_by) > MOST_COLUMNS:
        raise _refused(
            view,
            f"partition_by: {len(parsed.partition_by)} columns",
            f"{MOST_COLUMNS} are the most; name the others under cluster_by",
        )
    if parsed.partition_by and set(key) <= set(parsed.partition_by):
        raise _refused(
            view,
            "partition_by has the whole key, so each row would be a file",
            "name the key's columns under cluster_by",
        )
    return parsed


def _refused(view: str, fault: str, hint: str) -> ConfigurationError:
    return ConfigurationError(f"{view}.delta.json: {fault}", hint=hint)
