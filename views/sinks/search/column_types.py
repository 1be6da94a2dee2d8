"""Derives the mapping of a search index from the types of a view's columns."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from changelog.contract.base.errors import SinkError

# The document's source is stored and served exactly; the mapping only says how it can be searched.
# So a value that the index cannot hold (NaN, an infinite date, a year before 1) is left out of the
# index of its field (`ignore_malformed`) and stays in the document, and a decimal is searched as a
# double while the document has all its digits.
# A keyword has at most 32,766 bytes, and a character up to four.
_TEXT = {
    "type": "text",
    "fields": {"keyword": {"type": "keyword", "ignore_above": 8_191}},
}
_NUMBERS: dict[type[DataType], str] = {
    ShortType: "short",
    IntegerType: "integer",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    DecimalType: "double",
}
_DATES = (DateType, TimestampType, TimestampNTZType)


def properties(schema: StructType, path: str = "") -> dict[str, Any]:
    """Return the mapping's `properties`.

    Raises SinkError: OpenSearch reserves a column's name.
    """
    for name in schema.fieldNames():
        if not name.strip() or "." in name or name.startswith("_"):
            raise SinkError(
                f'column "{path}{name}" has a name that OpenSearch reserves',
                hint="name it with AS, without a dot and without _ at its start",
            )
    return {field.name: _mapped(f"{path}{field.name}.", field.dataType) for field in schema.fields}


def field_count(mapping: dict[str, Any]) -> int:
    """Count the fields of a mapping as OpenSearch does for its limit, including subfields."""
    return sum(
        1 + field_count(field.get("properties", {})) + len(field.get("fields", {}))
        for field in mapping.values()
    )


def _mapped(path: str, kind: DataType) -> dict[str, Any]:  # noqa: PLR0911 - one for each type
    match kind:
        case ArrayType():
            inner = _mapped(path, kind.elementType)
            # Without `nested`, a search could match fields of different elements together.
            return {**inner, "type": "nested"} if "properties" in inner else inner
        case StructType():
            return {"type": "object", "properties": properties(kind, path)}
        case MapType():
            return {"type": "object", "enabled": False}
        case BooleanType():
            return {"type": "boolean"}
        case BinaryType():
            return {"type": "binary"}
        case _ if isinstance(kind, _DATES):
            return {"type": "date", "ignore_malformed": True}
        case _ if type(kind) in _NUMBERS:
            return {"type": _NUMBERS[type(kind)], "ignore_malformed": True}
        case _ if kind.simpleString() == "tinyint":
            return {"type": "byte", "ignore_malformed": True}
        case _:
            return dict(_TEXT)
