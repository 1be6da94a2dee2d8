"""Maps a view's columns to columns of Iceberg, which are known by their ids.

| Spark | Iceberg |
|---|---|
| boolean, string, binary, date | boolean, string, binary, date |
| tinyint, smallint and int, bigint | int, long |
| float, double | float, double |
| decimal(p, s) | decimal(p, s) |
| timestamp, timestamp_ntz | timestamptz, timestamp: microseconds |
| array, struct, map | list, struct, map |

A generation with the columns of an earlier one has its schema. In a new schema a column that is as
it was keeps its id, and one of another type is another column: no reader takes the values of old
files for those of the new type.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import types as spark

_SCALARS: dict[type[spark.DataType], IcebergType] = {
    spark.BooleanType: BooleanType(),
    spark.ByteType: IntegerType(),
    spark.ShortType: IntegerType(),
    spark.IntegerType: IntegerType(),
    spark.LongType: LongType(),
    spark.FloatType: FloatType(),
    spark.DoubleType: DoubleType(),
    spark.StringType: StringType(),
    spark.CharType: StringType(),
    spark.VarcharType: StringType(),
    spark.BinaryType: BinaryType(),
    spark.DateType: DateType(),
    spark.TimestampType: TimestamptzType(),
    spark.TimestampNTZType: TimestampType(),
}


def names_in(kind: spark.DataType) -> Iterator[str]:
    """Yield the names of a type's fields, at any depth."""
    match kind:
        case spark.StructType():
            for field in kind.fields:
                yield field.name
                yield from names_in(field.dataType)
        case spark.ArrayType():
            yield from names_in(kind.elementType)
        case spark.MapType():
            yield from names_in(kind.valueType)
        case _:
            pass


def new_schema(columns: spark.StructType) -> Schema:
    """Return the schema of a new table for a view's columns."""
    return Schema(*_fields(columns, count(1)))


def matching_schema(columns: spark.StructType, metadata: TableMetadata) -> Schema | None:
    """Return the newest schema that a table has for a view's columns, or None."""
    shape = _shape(new_schema(columns))
    ordered = sorted(metadata.schemas, key=lambda schema: schema.schema_id, reverse=True)
    return next((schema for schema in ordered if _shape(schema) == shape), None)


def next_schema(columns: spark.StructType, metadata: TableMetadata) -> Schema:
    """Return a schema for a view's columns that a table has not."""
    newest = max(metadata.schemas, key=lambda schema: schema.schema_id)
    before = {field.name: field for field in newest.fields}
    fields = []
    for field in _fields(columns, count(metadata.last_column_id + 1)):
        own = before.get(field.name)
        fields.append(own if own and _shape(Schema(own)) == _shape(Schema(field)) else field)
    return Schema(*fields, schema_id=newest.schema_id + 1)


def _shape(schema: Schema) -> pa.Schema:
    """Return the names and types of a schema, without ids."""
    return schema_to_pyarrow(schema, include_field_ids=False)


def _fields(columns: spark.StructType, ids: Iterator[int]) -> list[NestedField]:
    # All names of one level get their ids first, as catalogues number them.
    own = [next(ids) for _ in columns.fields]
    return [
        NestedField(number, field.name, _type(field.dataType, ids), required=False)
        for number, field in zip(own, columns.fields, strict=True)
    ]


def _type(kind: spark.DataType, ids: Iterator[int]) -> IcebergType:
    match kind:
        case spark.DecimalType():
            return DecimalType(kind.precision, kind.scale)
        case spark.ArrayType():
            return ListType(next(ids), _type(kind.elementType, ids), element_required=False)
        case spark.MapType():
            key, value = next(ids), next(ids)
            return MapType(
                key,
                _type(kind.keyType, ids),
                value,
                _type(kind.valueType, ids),
                value_required=False,
            )
        case spark.StructType():
            return StructType(*_fields(kind, ids))
        case _:
            return _SCALARS[type(kind)]
