"""The types of a view's rows as columns of Arrow: moments in UTC, whatever the version of Spark."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

_ZONED = "timezone" in signature(to_arrow_schema).parameters
_UTC: dict[str, Any] = {"timezone": "UTC"} if _ZONED else {}
"""Of moments as Arrow has them; before Spark 4.2 they have it unasked."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema of a view's rows."""
    return to_arrow_schema(schema, **_UTC)
