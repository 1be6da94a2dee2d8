"""Read one snapshot of an Iceberg table, by its catalogue and pyiceberg, a few rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from changelog.compare.iceberg_file import read_file
from changelog.contract.base.errors import ChangelogError, SinkError
from changelog.contract.base.secret import redacted
from views.base.address import Address
from views.base.iceberg import IcebergPlace
from views.verify.served.delta import check_columns, conformed
from views.verify.values.types import Type, arrow_type


def iceberg_tables(address: Address, columns: Sequence[tuple[str, Type]]) -> Iterator[pa.Table]:
    """Return the rows of a snapshot."""
    place = IcebergPlace.of_location(address.location)
    number = int(address.location["snapshot"])
    try:
        with place.opened() as catalogue:
            loaded = place.load(catalogue)
            snapshot = loaded and loaded[0].snapshot_by_id(number)
            if loaded is None or snapshot is None:
                raise SinkError(f"{place} has no snapshot {number}")
            table, _ = loaded
            schema = next(s for s in table.metadata.schemas if s.schema_id == snapshot.schema_id)
            check_columns(str(place), [field.name for field in schema.fields], columns)
            for task in table.scan(snapshot_id=number).plan_files():
                if task.delete_files:
                    raise SinkError(f"{place} has deletes, which no generation has")
                for batch in read_file(table, schema, task, []):
                    yield conformed(str(place), _narrowed(pa.table(batch), columns), columns)
    except ChangelogError:
        raise
    except Exception as error:
        text = " ".join(redacted(str(error)).split()) or type(error).__name__
        raise SinkError(f"{place} cannot be read: {text}") from error


def _narrowed(table: pa.Table, columns: Sequence[tuple[str, Type]]) -> pa.Table:
    """Return a table with the view's small whole numbers, for which Iceberg has no type.

    Raises ArrowInvalid: one of them is too large.
    """
    for name, kind in columns:
        place = table.schema.get_field_index(name)
        field = table.schema.field(place)
        own = _narrow(field.type, kind)
        if own != field.type:
            table = table.set_column(place, name, table.column(place).cast(own))
    return table


def _narrow(actual: pa.DataType, kind: Type) -> pa.DataType:
    inner = [field for _, field in kind.fields]
    if kind.name in {"tinyint", "smallint"} and pa.types.is_int32(actual):
        return arrow_type(kind)
    if kind.name == "array" and pa.types.is_large_list(actual):
        return pa.large_list(_narrow(actual.value_type, inner[0]))
    if kind.name == "map" and pa.types.is_map(actual):
        return pa.map_(_narrow(actual.key_type, inner[0]), _narrow(actual.item_type, inner[1]))
    if kind.name == "struct" and pa.types.is_struct(actual):
        own = dict(kind.fields)
        return pa.struct(
            [(f.name, _narrow(f.type, own[f.name]) if f.name in own else f.type) for f in actual]
        )
    return actual
