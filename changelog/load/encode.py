"""Records to COPY: many at once in C where their schemas allow it, else one by one as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from changelog.connect.rules.records.reading import BadRecordError, parse_json
from changelog.contract.base.errors import ChangelogError, UnavailableError
from changelog.contract.forms.moments import moment_text
from changelog.contract.rows.codec import FRAME_BYTES
from changelog.lines.forms.headers import header_text
from changelog.lines.forms.shown import is_framed
from changelog.load.plan import Copier, Planner, Record
from changelog.load.rules.cells import Raw, cell, line_of
from changelog.load.rules.columns import MissingError, Part, Source, of_tombstone, picked
from changelog.load.rules.separated import SeparatedError, fields_of
from changelog.load.rules.table import Table
from changelog.load.rules.wanted import Form, Rules, Tombstones

ORDINAL, GONE = "changelog_n", "changelog_gone"
"""Columns of the table in which rows are put in order before they are written."""

Read = Callable[[bytes], Any]


class UnfitRecordError(Exception):
    """A record cannot become a row.

    Attributes:
        record: which.
    """

    def __init__(self, record: Record, reason: str) -> None:
        super().__init__(reason)
        self.record = record


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows in one of COPY's formats, without header and trailer.

    Attributes:
        is_binary: which format.
        content: their bytes.
        rows: how many.
        deletes: how many of them say that a row is gone.
    """

    is_binary: bool
    content: bytes
    rows: int
    deletes: int = 0


class Encoder:
    """Makes chunks of records, by one set of rules."""

    def __init__(self, rules: Rules, table: Table, planner: Planner) -> None:
        """Take the rules, the table, and what knows the schemas."""
        self._rules, self._planner = rules, planner
        self._cells = {name: cell(table.columns[name]) for name in rules.columns}
        self._columns = table.columns
        self._gone = of_tombstone(rules.columns, rules.keys)
        self._names = {each.path[0] for each in rules.columns.values() if each.path}
        of_value = [
            each.part is Part.VALUE and len(each.path) == 1 for each in rules.columns.values()
        ]
        self._is_flat = all(of_value)
        self._values = self._reader(rules.value, "value")
        self._keys = self._reader(rules.key, "key")

    def chunks(self, records: Sequence[Record]) -> list[Chunk]:
        """Return the rows of records, in no order where an ordinal says theirs.

        Raises:
            UnfitRecordError: one of them can be no row.
            ChangelogError: the registry does not answer.
        """
        values = [each.value() for each in records]
        live: Sequence[int] = range(len(records))
        found: list[Chunk] = []
        if None in values:
            live = [n for n, each in enumerate(values) if each is not None]
            gone = [n for n, each in enumerate(values) if each is None]
            if self._rules.tombstones is Tombstones.REFUSE:
                raise UnfitRecordError(
                    records[gone[0]], "it has no value, and rows that are appended are not deleted"
                )
            if self._rules.tombstones is Tombstones.DELETE:
                found.append(self._texts(records, gone, is_gone=True))
        for copier, some in self._groups(records, values, live):
            found.append(self._copied(copier, records, values, some))
        return [each for each in found if each.rows]

    def _groups(
        self, records: Sequence[Record], values: Sequence[Any], live: Sequence[int]
    ) -> Iterable[tuple[Copier | None, Sequence[int]]]:
        """Return which records go by which copier; None for none."""
        if self._rules.value not in {Form.AUTO, Form.AVRO}:
            return [(None, live)]
        frames: dict[tuple[bytes, bytes], list[int]] = {}
        if self._planner.needs_keys:
            for n in live:
                head = (records[n].key() or b"")[:FRAME_BYTES]
                frames.setdefault((values[n][:FRAME_BYTES], head), []).append(n)
        else:
            heads = [values[n][:FRAME_BYTES] for n in live]
            if len(set(heads)) == 1:
                return [(self._planner.copier(heads[0], b""), live)]
            for n, head in zip(live, heads, strict=True):
                frames.setdefault((head, b""), []).append(n)
        return [(self._planner.copier(*each), some) for each, some in frames.items()]

    def _copied(
        self,
        copier: Copier | None,
        records: Sequence[Record],
        values: Sequence[Any],
        some: Sequence[int],
    ) -> Chunk:
        content = None if copier is None else copier(records, values, some)
        if content is None:
            return self._texts(records, some, is_gone=False)
        return Chunk(is_binary=True, content=content, rows=len(some))

    def _texts(self, records: Sequence[Record], some: Sequence[int], *, is_gone: bool) -> Chunk:
        lines = []
        for n in some:
            try:
                cells = self._line(records[n], is_gone=is_gone)
            except (BadRecordError, MissingError, SeparatedError, UnicodeEncodeError) as error:
                raise UnfitRecordError(records[n], str(error)) from error
            except UnavailableError:
                raise
            except ChangelogError as error:
                raise UnfitRecordError(records[n], str(error.args[0])) from error
            if self._rules.keys:
                cells += [str(n).encode(), b"t" if is_gone else b"f"]
            lines.append(line_of(cells))
        return Chunk(
            is_binary=False,
            content=b"".join(lines),
            rows=len(lines),
            deletes=len(lines) if is_gone else 0,
        )

    def _line(self, record: Record, *, is_gone: bool) -> list[bytes | None]:
        if self._is_flat and not is_gone:
            found = self._values(record.value())
            if isinstance(found, dict):
                return self._flat_line(found)
        parts: dict[Part, Any] = {}
        wanted = self._gone if is_gone else self._rules.columns
        cells = []
        for name, write in self._cells.items():
            source = wanted.get(name)
            cells.append(None if source is None else write(self._part(record, name, source, parts)))
        if not is_gone and self._rules.all_fields:
            self._check_known(parts.get(Part.VALUE))
        return cells

    def _flat_line(self, found: dict[str, Any]) -> list[bytes | None]:
        """Return the cells of an object whose members are the columns: of most records."""
        if self._rules.all_fields and not found.keys() <= self._names:
            self._check_known(found)
        return [
            write(found[source.path[0]] if source.path[0] in found else self._picked(source, found))
            for source, write in zip(
                self._rules.columns.values(), self._cells.values(), strict=True
            )
        ]

    def _part(self, record: Record, name: str, source: Source, parts: dict[Part, Any]) -> Any:  # noqa: ANN401 - any JSON; one for each part
        match source.part:
            case Part.VALUE | Part.KEY:
                if source.part not in parts:
                    is_value = source.part is Part.VALUE
                    raw = record.value() if is_value else record.key()
                    read = self._values if is_value else self._keys
                    parts[source.part] = None if raw is None else read(raw)
                return self._picked(source, parts[source.part])
            case Part.TOPIC:
                return record.topic()
            case Part.PARTITION:
                return record.partition()
            case Part.OFFSET:
                return record.offset()
            case Part.TIMESTAMP:
                ms = record.timestamp()[1]
                is_moment = self._columns[name].base in {"timestamptz", "timestamp"}
                return moment_text(ms, digits=3) if is_moment else ms
            case Part.HEADER:
                found = header_text(record.headers(), source.path[0])
                return None if found is None else Raw(found)

    def _picked(self, source: Source, found: Any) -> Any:  # noqa: ANN401 - any JSON
        path = source.path
        if source.part is Part.KEY and path and not isinstance(found, dict):
            # A key of one column is often its bare value.
            return found if len(self._rules.keys) == 1 and len(path) == 1 else picked(found, path)
        if path and isinstance(found, dict) and path[0] not in found:
            path = (self._planner.field_of(path[0]), *path[1:])
            if path[0] not in found and self._planner.knows(path[0]):
                return self._planner.default_of(path[0])
        return picked(found, path)

    def _check_known(self, found: Any) -> None:  # noqa: ANN401 - any JSON
        for name in found if isinstance(found, dict) else ():
            if name not in self._names and self._planner.column_of(name) not in self._names:
                raise BadRecordError(
                    f'it has the field "{name}", for which the table had no column at the start'
                )

    def _reader(self, form: Form, what: str) -> Read:
        def csv(raw: bytes) -> dict[str, Any]:
            fields = fields_of(raw, self._rules.delimiter)
            names = self._rules.fields
            if len(fields) != len(names):
                raise SeparatedError(f"it has {len(fields)} fields, not {len(names)}")
            return {
                name: None if each is None else Raw(each)
                for name, each in zip(names, fields, strict=True)
            }

        def auto(raw: bytes) -> Any:  # noqa: ANN401 - any JSON
            return self._planner.read(raw, what) if is_framed(raw) else _json(raw, what)

        match form:
            case Form.AUTO:
                return auto
            case Form.AVRO:
                return lambda raw: self._planner.read(raw, what)
            case Form.JSON:
                return lambda raw: _json(raw, what)
            case Form.CSV:
                return csv
            case Form.TEXT:
                return Raw


def _json(raw: bytes, what: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return parse_json(raw, what)
    except BadRecordError:
        if what == "value":
            raise
        return Raw(raw)  # a key of text
