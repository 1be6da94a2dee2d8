"""Framed rows, written under any version of a schema, as rows of the newest one.

Each record is read as it was written: resolved to another schema, the text of a value without a
place in its type would be taken for the bytes of one that has it. What the newest version has and
the record's has not is its default.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from changelog.avro.bodies import BodyReader, bare
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.headers import Op
from changelog.contract.forms.event_record import read_value_schema
from changelog.contract.log.form import Envelope, Form
from changelog.contract.rows.codec import FRAME_BYTES, frame
from changelog.contract.rows.evolution import obstacles
from changelog.contract.rows.schema import LoggedColumn, LoggedSchema
from changelog.contract.rows.types import ColumnType, Kind

Values = tuple[Any, ...]
_GONE = Op.DELETE.value.decode()
_THERE = {op.value.decode() for op in (Op.READ, Op.CREATE, Op.UPDATE)}
_Picker = Callable[[Mapping[str, Any]], Values]
_Version = tuple[BodyReader, _Picker, _Picker]
"""Reads a version's bodies; takes the values that are wanted, and those of the key that may be
null."""

_UNLIKE = "the value's body does not follow its schema"


class UnreadableRecordError(Exception):
    """A record cannot be read: the reason, to which a caller that knows it adds the place."""


class DecodedBodies:
    """Fields of decoded records, for several readers of the same records; forgets all at once."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes  # of records; more are decoded each time
        self._bytes = 0
        self._by_topic: dict[str, dict[bytes, Any]] = {}

    def of(self, topic: str) -> dict[bytes, Any]:
        """Return the fields of a topic's records; stays the same object."""
        return self._by_topic.setdefault(topic, {})

    def add(self, topic: str, record: bytes, fields: Any) -> None:  # noqa: ANN401 - an Avro value
        """Keep the fields of a record, if there is room."""
        self._bytes += len(record)
        if self._bytes <= self._most_bytes:
            self._by_topic[topic][record] = fields

    def clear(self) -> None:
        """Forget all records."""
        self._bytes = 0
        for fields in self._by_topic.values():
            fields.clear()


class AvroRowReader:
    """Reads the rows of a topic.

    `versions` are of the value's schema, by their ids; rows have the columns of the `newest`, or
    those of `columns` in their order. `topic` is for messages. `decoded`: shared with other readers
    of the topic under the same versions, none of which changes what it reads.

    Raises:
        ConfigurationError: the table has no such column.
    """

    def __init__(
        self,
        topic: str,
        versions: Mapping[int, str],
        newest: int,
        form: Form,
        columns: Sequence[str] | None = None,
        *,
        decoded: DecodedBodies | None = None,
    ) -> None:
        self._decoded = decoded
        self._known = {} if decoded is None else decoded.of(topic)
        self.logged: LoggedSchema = read_value_schema(versions[newest])  # the newest version
        self.columns = _chosen(self.logged, columns)  # those that are wanted
        self._key = [column for column in self.logged.columns if column.column in self.logged.key]
        self._topic, self._newest = topic, newest
        self._texts = {frame(number): (number, text) for number, text in versions.items()}
        self._versions: dict[bytes, _Version] = {}
        self._has_events, self._is_nested = form.has_events, form.envelope is Envelope.NESTED

    def row(self, record: bytes) -> Values | None:
        """Return the values of a row; None for an event that says that its row is gone.

        Raises UnreadableRecordError: the record cannot be read; CorruptRecordError: its schema is
        none of ours.
        """
        body, pick, key = self._versions.get(record[:FRAME_BYTES]) or self._version(record)
        fields = self._known.get(record)
        if fields is None:
            fields = self._fields(body, record)
        if self._has_events:
            if fields["op"] == _GONE:
                return None
            if fields["op"] not in _THERE:
                raise UnreadableRecordError(f"the event's operation is '{fields['op']}'")
        if self._is_nested:
            fields = fields["after"]
        if fields is None or None in key(fields):
            raise UnreadableRecordError(_UNLIKE)
        return pick(fields)

    def _fields(self, body: BodyReader, record: bytes) -> Any:  # noqa: ANN401 - an Avro value
        try:
            fields, left_over = body.read(record)
        except Exception as error:
            raise UnreadableRecordError(_UNLIKE) from error
        if left_over:
            raise UnreadableRecordError("the value's body is longer than its schema says")
        if self._decoded is not None:
            self._decoded.add(self._topic, record, fields)
        return fields

    def _version(self, record: bytes) -> _Version:
        """Return the reader of the schema that a record was written under, made once for each.

        Raises UnreadableRecordError: it is under no version, or under one that does not read as the
        newest; CorruptRecordError: its schema is none of ours.
        """
        head = record[:FRAME_BYTES]
        if head not in self._texts:
            raise UnreadableRecordError(
                f"the value's first bytes {head.hex().upper()} are no frame with a schema id of "
                f'subject "{self._topic}-value"'
            )
        number, text = self._texts[head]
        written = read_value_schema(text)
        if why := obstacles(written, self.logged):
            raise UnreadableRecordError(
                f"written under schema id {number}, cannot be read as {self._newest}: "
                + "; ".join(why)
            )
        there = {column.field for column in written.columns}
        never_null = {column.field for column in written.columns if not column.nullable}
        self._versions[head] = (
            BodyReader(bare(json.loads(text))),
            _picked(self.columns, there),
            _picked([column for column in self._key if column.field not in never_null], there),
        )
        return self._versions[head]


def _chosen(logged: LoggedSchema, names: Sequence[str] | None) -> tuple[LoggedColumn, ...]:
    if names is None:
        return logged.columns
    there = {column.column: column for column in logged.columns}
    for name in names:
        if name not in there:
            raise ConfigurationError(
                f'table "{logged.table}" has no column "{name}"', hint=f"it has {', '.join(there)}"
            )
    return tuple(there[name] for name in names)


def _picked(columns: Sequence[LoggedColumn], there: set[str]) -> _Picker:
    """Return the function that takes columns' values of a record that has some of the fields."""
    fields = [column.field for column in columns]
    defaults = {column.field: default_of(column) for column in columns if column.field not in there}
    if defaults:
        return lambda values: tuple(
            defaults[field] if field in defaults else values[field] for field in fields
        )
    if len(fields) == 1:
        return lambda values: (values[fields[0]],)
    return itemgetter(*fields) if fields else lambda _: ()


def default_of(column: LoggedColumn) -> Any:  # noqa: ANN401 - any type
    """Return the value of a column that a record lacks."""
    return None if column.default is None else _raw(json.loads(column.default), column.type)


def _raw(value: Any, kind: ColumnType) -> Any:  # noqa: ANN401 - any type
    if value is None:
        return None
    if kind.element is not None:
        return [_raw(item, kind.element) for item in value]
    if kind.kind in {Kind.BYTES, Kind.DECIMAL}:
        return value.encode("iso-8859-1")  # as Avro writes bytes in JSON
    return value
