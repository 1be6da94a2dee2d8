"""Options of a cache, and the values of its entries.

A hash has a field for each column that is not null, so a null differs from any text. The text of a
field is the value's JSON in the document, without quotes around a string.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydantic import Field
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import StructType

from changelog.contract.base.errors import SinkError
from views.base.cache import HashTag, Value
from views.sinks.options import Options
from views.sinks.rendering import document, json_text, scalar_text
from views.sinks.shape import SCALARS, holds_float
from views.sinks.unique import column


class CacheOptions(Options):
    """Options of one view, `views/NAME.cache.json`."""

    # the form of an entry: a JSON document, a hash of texts, or the one value as text
    value: Value = "json"
    # `view` puts a generation's entries into one slot of a cluster, `key` those of one key in all
    # generations and views; without it, a cluster spreads them by their names
    hash_tag: HashTag | None = None
    # how long entries stay after their generation is removed; None to remove them at once
    ttl_seconds: int | None = Field(default=None, ge=1)


def rendering(value: Value, schema: StructType, key: Sequence[str]) -> Callable[..., Column]:
    """Return the function that renders rows as entries.

    Raises SinkError: the columns have no such form.
    """
    if value == "json":
        return document
    if value == "hash":
        return _fields
    others = [name for name in schema.fieldNames() if name not in key]
    if len(others) != 1:
        raise SinkError(
            f'value "string" needs one column beside the key, this view has {len(others)}',
            hint="take the others out of the view, or write value hash or json",
        )
    for name in key:
        if holds_float(schema[name].dataType):
            raise SinkError(
                f'value "string" cannot have the float "{name}" as a key: -0.0 would read as 0.0',
                hint="cast it to a decimal, or write value hash or json",
            )
    return lambda schema: _text(schema, others[0])


def _fields(schema: StructType) -> Column:
    """Return a JSON object of texts, without members for nulls."""
    members = [_text(schema, name).alias(name) for name in schema.fieldNames()]
    return F.to_json(F.struct(*members), {"ignoreNullFields": "true"})


def _text(schema: StructType, name: str) -> Column:
    kind = schema[name].dataType
    value = column(name)
    return scalar_text(value, kind) if isinstance(kind, SCALARS) else json_text(value, kind)
