"""Checks that every row of a view has a key of its own, without a null in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from changelog.contract.base.errors import SinkError


def column(name: str) -> Column:
    """Return a top-level column by its name, whatever characters are in it."""
    return F.col("`" + name.replace("`", "``") + "`")


def of_keys(keys: DataFrame, names: Mapping[str, str]) -> tuple[DataFrame, list[Column]]:
    """Return keys under names that no row has, and the condition that a row has one of them.

    Nulls are equal here, so that a row with a null in its key is found and refused later.
    """
    renamed = {name: f"key {name}" for name in names.values()}
    own_keys = keys.select(*(column(name).alias(other) for name, other in renamed.items()))
    same = [column(name).eqNullSafe(column(renamed[key_name])) for name, key_name in names.items()]
    return own_keys, same


def assert_unique(rows: DataFrame, key: Sequence[str]) -> None:
    """Raise when two rows share a key or a key holds a null; runs one Spark job over the key.

    Raises SinkError: naming one such key.
    """
    names = [column(name) for name in key]
    null = reduce(or_, (name.isNull() for name in names))
    times = rows.select(*names).groupBy(*names).agg(F.count(F.lit(1)).alias("times of the key"))
    doubled = times.where((column("times of the key") > 1) | null).limit(1).collect()
    if doubled:
        raise not_unique(key, tuple(doubled[0])[:-1])


def not_unique(key: Sequence[str], values: Sequence[object]) -> SinkError:
    """Return the error for a key that has a null or that several rows share."""
    text = ", ".join(f"{name}={value!r}" for name, value in zip(key, values, strict=True))
    if any(value is None for value in values):
        return null_in_key([text])
    return SinkError(
        f"several rows share one key ({text})",
        hint="declare the key that the rows really have, or aggregate them",
    )


def null_in_key(key: Sequence[str]) -> SinkError:
    """Return the error for a row with a null in its key."""
    return SinkError(
        f"a row has a null in its key ({', '.join(key)})",
        hint="leave such rows out, or take columns that are never null as the key",
    )
