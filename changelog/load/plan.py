"""Plans which records C encodes for COPY, by their schemas, and decodes the rest."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from changelog.avro.framed import FramedReader
from changelog.connect.rules.records.reading import BadRecordError, parse_json
from changelog.contract.base.errors import CorruptRecordError
from changelog.contract.rows.codec import unframe
from changelog.load.rules.columns import ColumnSource, RecordPart
from changelog.load.rules.options import LoadForm, Rules
from changelog.load.rules.schema import Fit, Schema, SchemaField, form_of, read_schema
from changelog.load.rules.table import LoadedTable, TableColumn
from changelog.native import BatchRange, RowCopier
from changelog.native.loads import AvroField, AvroRows, CellForm, CopyCell

SchemaOf = Callable[[int], tuple[str, str]]  # returns the kind and text of the schema with an id

_AVRO, _JSON = "AVRO", "JSON"
_INTEGERS = {"int2": CellForm.INT2, "int4": CellForm.INT4, "int8": CellForm.INT8}
_NUMBERED = {
    RecordPart.PARTITION: "partition",
    RecordPart.OFFSET: "offset",
    RecordPart.TIMESTAMP: "timestamp_ms",
}
"""Names of a batch's numbers: parts of records outside key and value."""


class SchemaCopier(NamedTuple):
    """Encodes records with one pair of schemas, of key and value, in C."""

    rows: RowCopier
    numbers: tuple[str, ...]  # the batch's numbers that fill columns

    def __call__(
        self, records: BatchRange, chosen: array[int], ordinals: Sequence[Any]
    ) -> bytes | None:
        """Return the tuples of the chosen records, or None if C cannot encode one.

        If rows are replaced by key, `ordinals` are two columns: the number of each record, and
        zeros, since none of them deletes.
        """
        numbers = [records.column(name) for name in self.numbers]
        return self.rows.copied(records, [*numbers, *ordinals], chosen)


class Planner:
    """Knows the schemas of a load, and chooses how records with them are encoded."""

    def __init__(
        self, rules: Rules, table: LoadedTable, schema: SchemaOf, latest: Schema | None
    ) -> None:
        """Take the function that returns schemas, and the newest schema of the values, if any."""
        self._rules, self._table, self._schema = rules, table, schema
        self._latest: Mapping[str, SchemaField] = {} if latest is None else latest.by_name
        self._schemas: dict[int, Schema | None] = {}
        self._copiers: dict[tuple[bytes, bytes], SchemaCopier | None] = {}
        self._read = FramedReader(schema)
        # columns whose values are sent as texts, which PostgreSQL casts
        self.casts: set[str] = set()
        self._direct: set[str] = set()  # columns whose values are sent in their own type
        # whether a column is filled from the records' keys
        self.needs_keys = any(source.part is RecordPart.KEY for source in rules.columns.values())

    def read(self, raw: bytes, part: str) -> Any:  # noqa: ANN401 - any JSON
        """Return the value of framed bytes.

        Raises:
            CorruptRecordError, BadRecordError: they cannot be decoded.
            LogError: the registry refuses, or does not answer.
        """
        value = self._read(raw)
        if isinstance(value, orjson.Fragment):
            return parse_json(unframe(raw)[1], part)
        return value

    def copier(self, value: bytes, key: bytes) -> SchemaCopier | None:
        """Return the encoder in C for records with these frames, or None if there is none."""
        if (value, key) not in self._copiers:
            self._copiers[value, key] = self._planned(value, key)
        return self._copiers[value, key]

    def field_of(self, name: str) -> str:
        """Return the Avro field of a column."""
        field = self._latest.get(name)
        return name if field is None else field.name

    def column_of(self, field: str) -> str:
        """Return the column of an Avro field."""
        schema_field = self._latest.get(field)
        return field if schema_field is None else schema_field.column

    def knows(self, name: str) -> bool:
        """Return whether the newest schema has a field."""
        return name in self._latest

    def default_of(self, name: str) -> Any:  # noqa: ANN401 - any JSON
        """Return the default of a field that the writer's schema lacks.

        Raises BadRecordError: there is no default, or none of a plain type.
        """
        field = self._latest[name]
        if not field.has_default:
            raise BadRecordError(f'its schema has no field "{name}", which has no default')
        if field.default is not None and (field.logical or not isinstance(field.default, _PLAIN)):
            raise BadRecordError(
                f'its schema has no field "{name}", whose default has a type that is not supported'
            )
        return field.default

    def _planned(self, value: bytes, key: bytes) -> SchemaCopier | None:
        unchanged = set(self.casts), set(self._direct)
        copier = self._drafted(value, key)
        if copier is None:
            self.casts, self._direct = unchanged
        return copier

    def _drafted(self, value: bytes, key: bytes) -> SchemaCopier | None:
        sides = {RecordPart.VALUE: self._schema_of(value, self._rules.value)}
        if self.needs_keys:
            sides[RecordPart.KEY] = self._schema_of(key, self._rules.key)
        numbers: list[str] = []
        cells: list[CopyCell] = []
        filled: dict[tuple[RecordPart, str], int] = {}
        for name, source in self._rules.columns.items():
            column = self._table.columns[name]
            cell = (
                self._numbered(source, column, numbers)
                if source.part in _NUMBERED
                else self._field_cell(source, column, sides, filled, len(cells))
            )
            if cell is None:
                return None
            cells.append(cell)
        read = {part for part, _ in filled}
        rows = {part: self._rows(part, raw, sides, filled) for part, raw in
                ((RecordPart.VALUE, value), (RecordPart.KEY, key)) if part in read}  # fmt: skip
        if None in rows.values():
            return None
        if self._rules.keys:
            ordinal = len(numbers)
            cells.append(CopyCell(CellForm.INT8, numbers=ordinal))
            cells.append(CopyCell(CellForm.BOOL, numbers=ordinal + 1))
        return SchemaCopier(
            RowCopier(rows.get(RecordPart.VALUE), rows.get(RecordPart.KEY), cells), tuple(numbers)
        )

    def _schema_of(self, frame: bytes, form: LoadForm) -> Schema | None:
        if form not in {LoadForm.AUTO, LoadForm.AVRO}:
            return None
        try:
            number, _ = unframe(frame)
            if number not in self._schemas:
                kind, text = self._schema(number)
                self._schemas[number] = read_schema(text) if kind == _AVRO else None
            return self._schemas[number]
        except CorruptRecordError:
            return None  # the record is decoded by itself, which raises the error

    def _field_cell(
        self,
        source: ColumnSource,
        column: TableColumn,
        sides: Mapping[RecordPart, Schema | None],
        filled: dict[tuple[RecordPart, str], int],
        place: int,
    ) -> CopyCell | None:
        schema = sides.get(source.part)
        if schema is None or len(source.path) != 1:
            return None
        field = schema.by_name.get(source.path[0])
        if field is None:
            return self._lacking(source)
        if (source.part, field.name) in filled:
            return None  # one field fills two columns
        filled[source.part, field.name] = place
        return self._fitting(field, column)

    def _fitting(self, field: SchemaField, column: TableColumn) -> CopyCell | None:
        """Return the cell of a field, or None; a column is cast for all schemas or for none."""
        fit = form_of(field, column)
        if fit is Fit.CAST and column.name not in self._direct:
            self.casts.add(column.name)
            return CopyCell(CellForm.TEXT)
        if isinstance(fit, Fit) or column.name in self.casts:
            return None
        self._direct.add(column.name)
        form, element = fit
        oid = column.element[1] if column.element is not None else 0
        return CopyCell(form, scale=field.scale, element=element, oid=oid)

    def _lacking(self, source: ColumnSource) -> CopyCell | None:
        field = self._latest.get(source.path[0]) if source.part is RecordPart.VALUE else None
        is_null = field is not None and field.has_default and field.default is None
        return CopyCell(CellForm.TEXT) if is_null else None

    def _numbered(
        self, source: ColumnSource, column: TableColumn, numbers: list[str]
    ) -> CopyCell | None:
        form = _INTEGERS.get(column.base)
        if source.part is RecordPart.TIMESTAMP and column.base in {"timestamptz", "timestamp"}:
            form = CellForm.MILLIS if column.most_fraction == _MICROS else None
        if form is None:
            return None
        numbers.append(_NUMBERED[source.part])
        return CopyCell(form, numbers=len(numbers) - 1)

    def _rows(
        self,
        part: RecordPart,
        raw: bytes,
        sides: Mapping[RecordPart, Schema | None],
        filled: Mapping[tuple[RecordPart, str], int],
    ) -> AvroRows | None:
        schema = sides[part]
        if schema is None:
            return None
        if self._rules.all_fields and part is RecordPart.VALUE:
            used = {name for filled_part, name in filled if filled_part is part}
            if any(field.name not in used for field in schema.fields):
                return None  # each record is encoded by itself, which raises the error
        fields = list(_fields(schema, part, filled))
        return None if None in fields else AvroRows(raw, tuple(field for field in fields if field))


def _fields(
    schema: Schema, part: RecordPart, filled: Mapping[tuple[RecordPart, str], int]
) -> Iterator[AvroField | None]:
    for field in schema.fields:
        if field.kind is None:
            yield None
        else:
            element = None if field.element is None else field.element[0]
            yield AvroField(field.kind, field.branches, filled.get((part, field.name)), element)


_PLAIN = (bool, int, float, str)
_MICROS = 6
