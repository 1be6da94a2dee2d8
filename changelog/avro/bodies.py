"""Bodies of Avro records to raw values, by fastavro.

fastavro's own logical types fail on values that Avro allows (infinities, years before 1 and past
9999). So a schema is read without them: moments stay integers and decimals bytes. What these mean
is the caller's to say: by a column's type (`changelog.avro.arrow`), or by a form of JSON
(`changelog.avro.jsonforms`).
"""

from __future__ import annotations

import struct
from io import BytesIO
from typing import Any

import fastavro

from changelog.contract.rows.codec import FRAME_BYTES

MALFORMED = (
    ValueError,
    IndexError,
    EOFError,
    struct.error,
    TypeError,
    KeyError,
    OverflowError,
    MemoryError,
    RecursionError,
)
"""Exceptions of fastavro for bytes that do not follow their schema."""

_TYPES_WITHIN = {"type", "items", "values", "fields"}
_LEFT_OUT = {"logicalType", "default"}


def bare(schema: Any) -> Any:  # noqa: ANN401 - an Avro schema is JSON
    """Return a schema without logical types, and without defaults, which would have to fit them.

    >>> bare(["null", {"type": "int", "logicalType": "date"}])
    ['null', {'type': 'int'}]
    """
    if isinstance(schema, list):
        return [bare(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: bare(value) if name in _TYPES_WITHIN else value
        for name, value in schema.items()
        if name not in _LEFT_OUT
    }


class BodyReader:
    """Reads the bodies of one schema.

    `schema` is as fastavro is to follow it: bare, or with logical types of ours.
    """

    def __init__(self, schema: Any) -> None:  # noqa: ANN401 - an Avro schema is JSON
        self._parsed: Any = fastavro.parse_schema(schema)

    def read(self, record: bytes, start: int = FRAME_BYTES) -> tuple[Any, int]:
        """Return the value whose body begins at a byte, and the number of bytes after it.

        Raises MALFORMED: the body does not follow the schema.
        """
        source = BytesIO(record)
        source.seek(start)
        value: Any = fastavro.schemaless_reader(source, self._parsed, None)
        return value, len(record) - source.tell()
