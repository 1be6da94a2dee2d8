"""Derives the Avro schema of a view's rows.

| Spark | Avro |
|---|---|
| boolean, float, double, string, binary | boolean, float, double, string, bytes |
| tinyint, smallint, int / bigint | int / long |
| decimal(p, s) | bytes, `decimal` |
| date | int, `date` |
| timestamp / timestamp_ntz | long, `timestamp-micros` / `local-timestamp-micros` |
| array, struct, map with text keys | array, record, map |

Each column of a value may be null, and is null if an older record does not have it. So columns can
be added and removed under the registry's usual rule of compatibility. The key's columns are never
null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
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
from views.sinks.shape import TEXTS

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def value_schema(view: str, schema: StructType) -> str:
    """Return the schema of the values.

    Raises SinkError: a name or a type has no form in Avro.
    """
    return json.dumps(_record(view, schema))


def key_schema(view: str, schema: StructType, key: Sequence[str]) -> str:
    """Return the schema of the keys.

    Raises SinkError: a name or a type has no form in Avro.
    """
    fields = [
        {"name": _named(name), "type": _type(schema[name].dataType, f"{view}_key_{name}")}
        for name in key
    ]
    return json.dumps({"type": "record", "name": f"{view}_key", "fields": fields})


def _record(name: str, schema: StructType) -> dict[str, Any]:
    fields = [
        {
            "name": _named(field.name),
            "type": ["null", _type(field.dataType, f"{name}_{field.name}")],
            "default": None,
        }
        for field in schema.fields
    ]
    return {"type": "record", "name": name, "fields": fields}


def _named(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise SinkError(
            f'column "{name}" is not a name in Avro',
            hint='name it by letters, digits and _ (AS), or write {"value": "json"} in the '
            "view's options of the topic",
        )
    return name


_PLAIN: Mapping[type[DataType], Any] = {
    BooleanType: "boolean",
    ByteType: "int",
    ShortType: "int",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    BinaryType: "bytes",
    **dict.fromkeys(TEXTS, "string"),
    DateType: {"type": "int", "logicalType": "date"},
    TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}


def _type(kind: DataType, name: str) -> Any:  # noqa: ANN401 - an Avro schema is JSON
    match kind:
        case DecimalType():
            decimal = {"precision": kind.precision, "scale": kind.scale}
            return {"type": "bytes", "logicalType": "decimal", **decimal}
        case ArrayType():
            return {"type": "array", "items": ["null", _type(kind.elementType, f"{name}_item")]}
        case StructType():
            return _record(name, kind)
        case MapType() if isinstance(kind.keyType, TEXTS):
            return {"type": "map", "values": ["null", _type(kind.valueType, f"{name}_value")]}
        case _ if type(kind) in _PLAIN:
            return _PLAIN[type(kind)]
        case _:
            raise SinkError(
                f"{kind.simpleString()} has no form in Avro, whose maps have texts as keys",
                hint='cast it, or write {"value": "json"} in the view\'s options of the topic',
            )
