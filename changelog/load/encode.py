"""Records to COPY: many at once in C where their schemas allow it, else one by one as text."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from changelog.connect.rules.records.reading import BadRecordError, parse_json
from changelog.contract.base.errors import ChangelogError, UnavailableError
from changelog.contract.forms.moments import moment_text
from changelog.lines.forms.headers import header_text
from changelog.lines.forms.shown import is_framed
from changelog.load.plan import Planner, SchemaCopier
from changelog.load.rules.cells import Raw, cell, csv_column, line_of, plain_of
from changelog.load.rules.columns import (
    ColumnSource,
    MissingError,
    RecordPart,
    of_tombstone,
    picked,
)
from changelog.load.rules.options import LoadForm, Rules, Tombstones
from changelog.load.rules.separated import SeparatedError, fields_of
from changelog.load.rules.table import LoadedTable
from changelog.native import BatchRange, CsvLines, JsonLines
from changelog.native.loads import WHOLE_KEY, WHOLE_VALUE, BatchRecord, Groups

ORDINAL, GONE = "changelog_n", "changelog_gone"
"""Columns of the table in which rows are put in order before they are written."""

Read = Callable[[bytes], Any]
_PIECE = 2048  # rows that are made while the server takes those before


class UnfitRecordError(Exception):
    """A record cannot become a row."""

    def __init__(self, record: BatchRecord, reason: str) -> None:
        super().__init__(reason)
        self.record = record


@dataclass(frozen=True, slots=True)
class CopyChunk:
    """Rows in one of COPY's formats, without header and trailer."""

    is_binary: bool  # which format
    content: bytes  # their bytes
    rows: int  # how many
    deletes: int = 0  # how many of them say that a row is gone


class Encoder:
    """Makes chunks of records, by one set of rules."""

    def __init__(self, rules: Rules, table: LoadedTable, planner: Planner) -> None:
        self._rules, self._planner = rules, planner
        self._cells = {name: cell(table.columns[name]) for name in rules.columns}
        self._columns = table.columns
        self._flat = [
            (source.path[0] if source.path else "", source, write)
            for source, write in zip(rules.columns.values(), self._cells.values(), strict=True)
        ]
        self._gone = of_tombstone(rules.columns, rules.keys)
        self._names = {source.path[0] for source in rules.columns.values() if source.path}
        of_value = [
            source.part is RecordPart.VALUE and len(source.path) == 1
            for source in rules.columns.values()
        ]
        self._is_flat = all(of_value)
        self._lines = self._writer()
        self._values = self._reader(rules.value, "value")
        self._keys = self._reader(rules.key, "key")

    def _writer(self) -> JsonLines | CsvLines | None:
        """Return the writer of plain values in C, or None if none applies."""
        match self._rules.value:
            case LoadForm.AUTO | LoadForm.JSON:
                return self._json_writer() if self._is_flat else None
            case LoadForm.CSV | LoadForm.TEXT:
                return self._csv_writer()
            case LoadForm.AVRO:
                return None

    def _json_writer(self) -> JsonLines | None:
        names = [source.path[0] for source in self._rules.columns.values()]
        if len(self._names) < len(names) or any(self._planner.knows(name) for name in names):
            return None  # what is left out may have a default
        plain = [plain_of(self._columns[name], field) for name, field in
                 zip(self._rules.columns, names, strict=True)]  # fmt: skip
        return JsonLines(plain, all_known=self._rules.all_fields, numbered=bool(self._rules.keys))

    def _csv_writer(self) -> CsvLines | None:
        is_text, delimiter = self._rules.value is LoadForm.TEXT, self._rules.delimiter
        places = {} if is_text else {name: n for n, name in enumerate(self._rules.fields)}
        places_of = [self._place(source, places) for source in self._rules.columns.values()]
        present = [place for place in places_of if place is not None]
        is_strange = self._rules.all_fields and not places.keys() <= self._names
        if len(present) < len(places_of) or is_strange or len(delimiter) != 1 or delimiter == b'"':
            return None
        plain = [csv_column(self._columns[name], place) for name, place in
                 zip(self._rules.columns, present, strict=True)]  # fmt: skip
        fields = 0 if is_text else len(self._rules.fields)
        keyed = bool(self._rules.keys)
        return CsvLines(plain, fields=fields, delimiter=delimiter, numbered=keyed)

    def _place(self, source: ColumnSource, fields: Mapping[str, int]) -> int | None:
        """Return the number of the field or part that fills a column; None otherwise."""
        match source.part:
            case RecordPart.VALUE if self._rules.value is LoadForm.TEXT and not source.path:
                return WHOLE_VALUE
            case RecordPart.VALUE if len(source.path) == 1:
                return fields.get(source.path[0])
            case RecordPart.KEY if self._rules.key is LoadForm.TEXT and (
                not source.path or (len(self._rules.keys) == 1 == len(source.path))
            ):
                return WHOLE_KEY
            case _:
                return None

    def chunks(self, records: BatchRange) -> Iterator[CopyChunk]:
        """Return the rows of records piece by piece, in no order where an ordinal says theirs.

        What PostgreSQL is to cast is known when this returns; an error comes with its piece.

        Raises UnfitRecordError: one of them can be no row; ChangelogError: the registry does not
        answer.
        """
        is_avro = self._rules.value in {LoadForm.AUTO, LoadForm.AVRO}
        groups = records.groups(by_value=is_avro, by_key=is_avro and self._planner.needs_keys)
        if groups.gone and self._rules.tombstones is Tombstones.REFUSE:
            raise UnfitRecordError(
                records[groups.gone[0]],
                "it has no value, and rows that are appended are not deleted",
            )
        copiers = [
            self._planner.copier(group.value, group.key) if is_avro and not group.is_other else None
            for group in groups.alike
        ]
        return self._pieces(records, groups, copiers)

    def _pieces(
        self, records: BatchRange, groups: Groups, copiers: Sequence[SchemaCopier | None]
    ) -> Iterator[CopyChunk]:
        count = len(records)
        ordinals = [array("q", range(count)), bytes(8 * count)] if self._rules.keys else []
        if self._rules.tombstones is Tombstones.DELETE:
            for some in _cut(groups.gone):
                yield self._texts(records, some, is_gone=True)
        for copier, group in zip(copiers, groups.alike, strict=True):
            for some in _cut(group.rows):
                content = None if copier is None else copier(records, some, ordinals)
                if content is None:
                    yield self._texts(records, some, is_gone=False)
                else:
                    yield CopyChunk(is_binary=True, content=content, rows=len(some))

    def _texts(self, records: BatchRange, some: array[int], *, is_gone: bool) -> CopyChunk:
        lines: list[bytes] = []
        plain = None if is_gone or self._are_framed(records, some) else self._lines
        at = 0
        while at < len(some):
            if plain is not None:
                done, content = plain.lines(records, some, at)
                lines.append(content)
                at += done
            if at < len(some):
                lines.append(self._text_of(records, some[at], is_gone=is_gone))
                at += 1
        return CopyChunk(
            is_binary=False,
            content=b"".join(lines),
            rows=len(some),
            deletes=len(some) if is_gone else 0,
        )

    def _are_framed(self, records: BatchRange, some: array[int]) -> bool:
        """Tell whether these are of a registry's schema, by the first of them."""
        value = records.value(some[0]) if self._rules.value is LoadForm.AUTO else None
        return value is not None and is_framed(value)

    def _text_of(self, records: BatchRange, number: int, *, is_gone: bool) -> bytes:
        try:
            cells = self._line(records, number, is_gone=is_gone)
        except (BadRecordError, MissingError, SeparatedError, UnicodeEncodeError) as error:
            raise UnfitRecordError(records[number], str(error)) from error
        except UnavailableError:
            raise
        except ChangelogError as error:
            raise UnfitRecordError(records[number], str(error.args[0])) from error
        if self._rules.keys:
            cells += [str(number).encode(), b"t" if is_gone else b"f"]
        return line_of(cells)

    def _line(self, records: BatchRange, number: int, *, is_gone: bool) -> list[bytes | None]:
        if self._is_flat and not is_gone:
            value = records.value(number)
            decoded = None if value is None else self._values(value)
            if isinstance(decoded, dict):
                return self._flat_line(decoded)
        record = records[number]
        parts: dict[RecordPart, Any] = {}
        sources = self._gone if is_gone else self._rules.columns
        cells = []
        for name, write in self._cells.items():
            source = sources.get(name)
            cells.append(None if source is None else write(self._part(record, name, source, parts)))
        if not is_gone and self._rules.all_fields:
            self._check_known(parts.get(RecordPart.VALUE))
        return cells

    def _flat_line(self, members: dict[str, Any]) -> list[bytes | None]:
        """Return the cells of an object whose members are the columns: of most records."""
        if self._rules.all_fields and not members.keys() <= self._names:
            self._check_known(members)
        return [
            write(members[name] if name in members else self._picked(source, members))
            for name, source, write in self._flat
        ]

    def _part(
        self, record: BatchRecord, name: str, source: ColumnSource, parts: dict[RecordPart, Any]
    ) -> Any:  # noqa: ANN401 - any JSON; one for each part
        match source.part:
            case RecordPart.VALUE | RecordPart.KEY:
                if source.part not in parts:
                    is_value = source.part is RecordPart.VALUE
                    raw = record.value if is_value else record.key
                    read = self._values if is_value else self._keys
                    parts[source.part] = None if raw is None else read(raw)
                return self._picked(source, parts[source.part])
            case RecordPart.TOPIC:
                return record.topic
            case RecordPart.PARTITION:
                return record.partition
            case RecordPart.OFFSET:
                return record.offset
            case RecordPart.TIMESTAMP:
                ms = record.timestamp_ms
                is_moment = self._columns[name].base in {"timestamptz", "timestamp"}
                return moment_text(ms, digits=3) if is_moment else ms
            case RecordPart.HEADER:
                header = header_text(record.headers, source.path[0])
                return None if header is None else Raw(header)

    def _picked(self, source: ColumnSource, decoded: Any) -> Any:  # noqa: ANN401 - any JSON
        path = source.path
        if source.part is RecordPart.KEY and path and not isinstance(decoded, dict):
            # A key of one column is often its bare value.
            return (
                decoded if len(self._rules.keys) == 1 and len(path) == 1 else picked(decoded, path)
            )
        if path and isinstance(decoded, dict) and path[0] not in decoded:
            path = (self._planner.field_of(path[0]), *path[1:])
            if path[0] not in decoded and self._planner.knows(path[0]):
                return self._planner.default_of(path[0])
        return picked(decoded, path)

    def _check_known(self, decoded: Any) -> None:  # noqa: ANN401 - any JSON
        for name in decoded if isinstance(decoded, dict) else ():
            if name not in self._names and self._planner.column_of(name) not in self._names:
                raise BadRecordError(
                    f'it has the field "{name}", for which the table had no column at the start'
                )

    def _reader(self, form: LoadForm, part: str) -> Read:
        def csv(raw: bytes) -> dict[str, Any]:
            fields = fields_of(raw, self._rules.delimiter)
            names = self._rules.fields
            if len(fields) != len(names):
                raise SeparatedError(f"it has {len(fields)} fields, not {len(names)}")
            return {
                name: None if field is None else Raw(field)
                for name, field in zip(names, fields, strict=True)
            }

        def auto(raw: bytes) -> Any:  # noqa: ANN401 - any JSON
            return self._planner.read(raw, part) if is_framed(raw) else _json(raw, part)

        match form:
            case LoadForm.AUTO:
                return auto
            case LoadForm.AVRO:
                return lambda raw: self._planner.read(raw, part)
            case LoadForm.JSON:
                return lambda raw: _json(raw, part)
            case LoadForm.CSV:
                return csv
            case LoadForm.TEXT:
                return Raw


def _cut(rows: array[int]) -> Iterator[array[int]]:
    return (rows[first : first + _PIECE] for first in range(0, len(rows), _PIECE))


def _json(raw: bytes, part: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return parse_json(raw, part)
    except BadRecordError:
        if part == "value":
            raise
        return Raw(raw)  # a key of text
