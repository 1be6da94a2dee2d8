"""Check that a sink can hold a view's columns exactly, before a row is written."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CalendarIntervalType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
    YearMonthIntervalType,
)

from changelog.contract.base.errors import SinkError

TEXTS = (StringType, CharType, VarcharType)
INTEGERS = (ByteType, ShortType, IntegerType, LongType)
_ONE_TEXT = (
    *TEXTS,
    *INTEGERS,
    BooleanType,
    DecimalType,
    BinaryType,
    DateType,
    TimestampType,
    TimestampNTZType,
)
"""Types whose equal values have one text. Floats have one only if -0.0 is written as 0.0."""
_OURS = re.compile(
    r"__(gone|key|changed|fault|id|partition|offset|(postgres|topic|search|cache|escape)_.*)"
)
"""Names of columns that are added to a view's where its rows are computed, sent and read back."""
SCALARS = (*_ONE_TEXT, FloatType, DoubleType)


def check_shape(schema: StructType, key: Sequence[str]) -> None:
    """Refuse columns and keys that not all sinks can hold.

    Raises SinkError: naming the column.
    """
    counted = Counter(name.lower() for name in schema.fieldNames())
    for name, times in counted.items():
        if times > 1:
            raise SinkError(f'{times} columns are called "{name}"', hint="name them with AS")
        if not name:
            raise SinkError("a column has an empty name", hint="name it with AS")
        if _OURS.fullmatch(name):
            raise SinkError(
                f'column "{name}" has a name that marks rows on their way to sinks',
                hint="give it another name with AS",
            )
    for field in schema.fields:
        _check_type(field.name, field.dataType)
    if not key:
        raise SinkError("a view needs at least one key column")
    for name in key:
        _check_key(schema, name)


def _check_key(schema: StructType, name: str) -> None:
    if name not in schema.fieldNames():
        raise SinkError(
            f'key column "{name}" is not a column of the view',
            hint=f"its columns are {', '.join(schema.fieldNames())}",
        )
    kind = schema[name].dataType
    if not _is_key_type(kind):
        raise SinkError(
            f'key column "{name}" is of type {kind.simpleString()}, which cannot be in a key',
            hint="take its fields as columns of their own, and these as the key",
        )


def _is_key_type(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _is_key_type(kind.elementType)
    return isinstance(kind, SCALARS)


def holds_float(kind: DataType) -> bool:
    """Tell whether a key's type is a float, or a list of them."""
    if isinstance(kind, ArrayType):
        return holds_float(kind.elementType)
    return isinstance(kind, (FloatType, DoubleType))


def _check_type(name: str, kind: DataType) -> None:
    match kind:
        case ArrayType():
            _check_type(f"{name}[]", kind.elementType)
        case StructType():
            _check_struct(name, kind)
        case MapType() if isinstance(kind.keyType, _ONE_TEXT):
            _check_type(f"{name}{{}}", kind.valueType)
        case _ if isinstance(kind, SCALARS):
            pass
        case DayTimeIntervalType() | YearMonthIntervalType() | CalendarIntervalType():
            raise SinkError(
                f'column "{name}" is an interval ({kind.simpleString()}), which no sink holds '
                "exactly",
                hint="write datediff(x, y) for the days between two dates; cast another one to a "
                "string, which --verify none alone publishes",
            )
        case _:
            raise SinkError(
                f'column "{name}" is of type {kind.simpleString()}, which no sink holds exactly',
                hint="cast it, for example to a string",
            )


def _check_struct(name: str, kind: StructType) -> None:
    counted = Counter(field.lower() for field in kind.fieldNames())
    if not counted or max(counted.values()) > 1:
        raise SinkError(
            f'column "{name}" is a struct without fields, or with two fields of one name'
        )
    for field in kind.fields:
        _check_type(f"{name}.{field.name}", field.dataType)
