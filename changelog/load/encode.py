"""Encodes records for COPY: many at once in C where their schemas allow it, else as text."""

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
"""Columns of the temporary table: the number of the record, and whether it deletes its row."""

Read = Callable[[bytes], Any]
_PIECE = 2048  # rows of a chunk; the server reads one while the next is encoded


class UnfitRecordError(Exception):
    """A record cannot become a row."""

    def __init__(self, record: BatchRecord, reason: str) -> None:
        super().__init__(reason)
        self.record = record


@dataclass(frozen=True, slots=True)
class CopyChunk:
    """Rows in one of COPY's formats, without header and trailer."""

    is_binary: bool  # in the binary format, else as text
    content: bytes
    rows: int
    deletes: int = 0  # the number of rows that delete a key


class Encoder:
    """Encodes records into chunks, by one set of rules."""

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
        self._is_flat = all(
            source.part is RecordPart.VALUE and len(source.path) == 1
            for source in rules.columns.values()
        )
        self._lines = self._writer()
        self._values = self._reader(rules.value, "value")
        self._keys = self._reader(rules.key, "key")

    def _writer(self) -> JsonLines | CsvLines | None:
        """Return the writer in C for plain values, or None if it does not apply."""
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
            return None  # a field that a record leaves out may have a default
        plain = [plain_of(self._columns[name], field) for name, field in
                 zip(self._rules.columns, names, strict=True)]  # fmt: skip
        return JsonLines(plain, all_known=self._rules.all_fields, numbered=bool(self._rules.keys))

    def _csv_writer(self) -> CsvLines | None:
        is_text, delimiter = self._rules.value is LoadForm.TEXT, self._rules.delimiter
        places = {} if is_text else {name: n for n, name in enumerate(self._rules.fields)}
        places_of = [self._place(source, places) for source in self._rules.columns.values()]
        present = [place for place in places_of if place is not None]
        has_unknown = self._rules.all_fields and not places.keys() <= self._names
        if len(present) < len(places_of) or has_unknown or len(delimiter) != 1 or delimiter == b'"':
            return None
        plain = [csv_column(self._columns[name], place) for name, place in
                 zip(self._rules.columns, present, strict=True)]  # fmt: skip
        fields = 0 if is_text else len(self._rules.fields)
        keyed = bool(self._rules.keys)
        return CsvLines(plain, fields=fields, delimiter=delimiter, numbered=keyed)

    def _place(self, source: ColumnSource, fields: Mapping[str, int]) -> int | None:
        """Return the number of the CSV field or whole part that fills a column; None for others."""
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
        """Return the rows of records in chunks, in any order if the rows have an ordinal.

        The planner knows the columns to cast when this returns. An error of a record is raised when
        its chunk is read.

        Raises UnfitRecordError: a record cannot become a row; ChangelogError: the registry does not
        answer.
        """
        is_avro = self._rules.value in {LoadForm.AUTO, LoadForm.AVRO}
        groups = records.groups(by_value=is_avro, by_key=is_avro and self._planner.needs_keys)
        if groups.gone and self._rules.tombstones is Tombstones.REFUSE:
            raise UnfitRecordError(
                records[groups.gone[0]],
                "it has no value, and --mode insert does not delete rows",
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
            for numbers in _cut(groups.gone):
                yield self._texts(records, numbers, is_gone=True)
        for copier, group in zip(copiers, groups.alike, strict=True):
            for numbers in _cut(group.rows):
                content = None if copier is None else copier(records, numbers, ordinals)
                if content is None:
                    yield self._texts(records, numbers, is_gone=False)
                else:
                    yield CopyChunk(is_binary=True, content=content, rows=len(numbers))

    def _texts(self, records: BatchRange, numbers: array[int], *, is_gone: bool) -> CopyChunk:
        """Return the chunk of the records with some numbers, as text."""
        lines: list[bytes] = []
        plain = None if is_gone or self._are_framed(records, numbers) else self._lines
        index = 0
        while index < len(numbers):
            if plain is not None:  # it stops at the first record that it cannot write
                done, content = plain.lines(records, numbers, index)
                lines.append(content)
                index += done
            if index < len(numbers):
                lines.append(self._text_of(records, numbers[index], is_gone=is_gone))
                index += 1
        return CopyChunk(
            is_binary=False,
            content=b"".join(lines),
            rows=len(numbers),
            deletes=len(numbers) if is_gone else 0,
        )

    def _are_framed(self, records: BatchRange, numbers: array[int]) -> bool:
        """Return whether records have a schema id of a registry, judged by the first one."""
        value = records.value(numbers[0]) if self._rules.value is LoadForm.AUTO else None
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
        """Return the cells of an object whose members are the columns, as of most records."""
        if self._rules.all_fields and not members.keys() <= self._names:
            self._check_known(members)
        return [
            write(members[name] if name in members else self._picked(source, members))
            for name, source, write in self._flat
        ]

    def _part(
        self, record: BatchRecord, name: str, source: ColumnSource, parts: dict[RecordPart, Any]
    ) -> Any:  # noqa: ANN401 - any JSON
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
            # A key with a single column is often written as its bare value.
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
        return Raw(raw)  # the key is plain text
