"""Read a Delta table through deltalake's own query engine.

`to_pyarrow_dataset` silently returns nulls under column mapping; `QueryBuilder` was right in all
cases tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from changelog.contract.base.errors import SinkError
from views.verify.values.types import Type, arrow_type


def delta_batches(path: str, columns: Sequence[tuple[str, Type]]) -> Iterator[pa.Table]:
    """Return the rows of a Delta table."""
    try:
        table = DeltaTable(path)
        check_columns(path, [field.name for field in table.schema().fields], columns)
        builder = QueryBuilder().register("served", table)
        for batch in builder.execute("SELECT * FROM served"):
            yield conformed(path, pa.table(batch), columns)
    except (DeltaError, OSError) as error:
        raise SinkError(f"the Delta table at {path} cannot be read: {error}") from error


def check_columns(path: str, actual: Sequence[str], columns: Sequence[tuple[str, Type]]) -> None:
    """Check that a table has the columns of a view.

    Raises SinkError: it has others.
    """
    expected = [name for name, _ in columns]
    if sorted(actual) != sorted(expected):
        raise SinkError(
            f"the table at {path} has the columns {', '.join(actual)}; "
            f"the view has {', '.join(expected)}"
        )


def conformed(path: str, table: pa.Table, columns: Sequence[tuple[str, Type]]) -> pa.Table:
    """Return a table in the view's types without losing anything."""
    arrays: dict[str, pa.Array] = {}
    for name, kind in columns:
        column = table.column(name).combine_chunks()
        try:
            arrays[name] = _conformed(column, kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            raise SinkError(f'the table at {path}, column "{name}": {error}') from error
    return pa.table(arrays)


def _conformed(array: pa.Array, kind: Type) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_dictionary(array.type):  # as a partition's value comes
        array = array.dictionary_decode()
    target = arrow_type(kind)
    match kind.name:
        case "date":
            return _within(array.cast(pa.date32()).view(pa.int32()), -(2**31)).view(target)
        case "timestamp" | "timestamp_ntz":
            if not pa.types.is_timestamp(array.type):
                raise ValueError(f"it has type {array.type}, not {kind.name}")
            zone = array.type.tz
            if (zone is not None) != (kind.name == "timestamp"):
                raise ValueError(f"it has type {array.type}, not {kind.name}")
            micros = array.cast(pa.timestamp("us", zone))
            return _within(micros.view(pa.int64()), -(2**63)).view(target)
        case "array":
            lists = array.cast(pa.list_(array.type.value_type))
            return pa.ListArray.from_arrays(
                _offsets(lists),
                _conformed(lists.flatten(), kind.fields[0][1]),
                mask=lists.is_null(),
            )
        case "map":
            _check_same(array.type, target, kind)
            entry = pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])
            lists = array.cast(pa.list_(entry))
            entries = lists.flatten()
            parts = (
                _conformed(pc.struct_field(entries, number), field)
                for number, (_, field) in enumerate(kind.fields)
            )
            return pa.MapArray.from_arrays(_offsets(lists), *parts, mask=lists.is_null())
        case "struct":
            return _struct(array, kind)
        case _:
            _check_same(array.type, target, kind)
            return array.cast(target)


def _offsets(lists: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    ends = pc.cumulative_sum(lengths.cast(pa.int32()))
    return pa.concat_arrays([pa.array([0], pa.int32()), ends])


def _struct(array: pa.Array, kind: Type) -> pa.Array:
    places = {array.type.field(i).name: i for i in range(array.type.num_fields)}
    if sorted(places) != sorted(name for name, _ in kind.fields):
        raise ValueError(f"it has the fields {', '.join(places)}")
    children = [_conformed(pc.struct_field(array, places[n]), field) for n, field in kind.fields]
    fields = list(arrow_type(kind))
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())


_FAMILIES = (
    (pa.types.is_boolean,),
    (pa.types.is_integer,),
    (pa.types.is_floating,),
    (pa.types.is_decimal,),
    (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
    (pa.types.is_map,),
)


def _check_same(actual: pa.DataType, target: pa.DataType, kind: Type) -> None:
    exact = pa.types.is_integer(target) or pa.types.is_floating(target)
    if pa.types.is_decimal(target):
        same = pa.types.is_decimal(actual) and (actual.precision, actual.scale) == (
            target.precision,
            target.scale,
        )
    elif exact:
        same = actual == target
    else:
        same = any(
            any(test(actual) for test in family) and any(test(target) for test in family)
            for family in _FAMILIES
        )
    if not same:
        raise ValueError(f"it has type {actual}, not {kind.name}")


def _within(array: pa.Array, lowest: int) -> pa.Array:
    """Move the lowest value up by one, to the number of DuckDB's `-infinity`."""
    low = pa.scalar(lowest, array.type)
    return pc.if_else(pc.equal(array, low), pa.scalar(lowest + 1, array.type), array)
