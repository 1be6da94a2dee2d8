"""Type oids and modifiers of PostgreSQL to the contract's column types."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from changelog.contract.types import ColumnType, Kind, array_type, column_type
from changelog.source.connect import Connection, source_errors

TypeRef = tuple[int, int]
"""A type's oid and the modifier of the column that has it, -1 for none."""

# An array is what subscripts as one: typelem alone is also set for a few fixed-length types.
_TYPE = """
SELECT typname, typtype::text, typbasetype, typtypmod,
       CASE WHEN typcategory = 'A' AND typlen = -1 THEN typelem ELSE 0::oid END
  FROM pg_type WHERE oid = %s
"""
_FORMAT = "SELECT format_type(%s, %s)"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A row of `pg_type`."""

    name: str
    kind: str
    base: int
    base_typmod: int
    element: int


class TypeResolver:
    """Looks types up once; a domain counts as its base type, whose text form it has."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._resolved: dict[TypeRef, ColumnType] = {}

    def resolve(self, refs: Iterable[TypeRef]) -> list[ColumnType]:
        """Give the column type of each reference."""
        return [self._cached(ref) for ref in refs]

    def _cached(self, ref: TypeRef) -> ColumnType:
        if ref not in self._resolved:
            with source_errors(self._connection, "cannot look a type up"):
                self._resolved[ref] = self._look_up(*ref)
        return self._resolved[ref]

    def _look_up(self, oid: int, typmod: int) -> ColumnType:
        entry, oid, typmod = self._base(oid, typmod)
        if entry is None:
            # Dropped since: its values in the stream are text all the same.
            return ColumnType(f"type {oid}", Kind.STRING, mapped=False)
        formatted = self._formatted(oid, typmod)
        if entry.element:
            return array_type(self._look_up(entry.element, typmod), formatted)
        return column_type(entry.name, formatted, is_enum=entry.kind == "e")

    def _base(self, oid: int, typmod: int) -> tuple[_Entry | None, int, int]:
        entry = self._entry(oid)
        while entry is not None and entry.kind == "d":
            oid, typmod = entry.base, entry.base_typmod
            entry = self._entry(oid)
        return entry, oid, typmod

    def _entry(self, oid: int) -> _Entry | None:
        with self._connection.cursor() as cursor:
            cursor.execute(_TYPE, (oid,))
            row = cursor.fetchone()
        return None if row is None else _Entry(*row)

    def _formatted(self, oid: int, typmod: int) -> str:
        with self._connection.cursor() as cursor:
            cursor.execute(_FORMAT, (oid, typmod))
            (text,) = cursor.fetchone() or ("",)
        return str(text)
