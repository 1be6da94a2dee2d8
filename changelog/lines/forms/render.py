"""Batches of records to lines, column by column. Pure.

A line is one pattern of bytes with a place for each field; a field is computed for all records of
a batch at once, which costs a fraction of going through the fields of each record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from changelog.contract.base.errors import ChangelogError, CorruptRecordError
from changelog.contract.base.headers import RecordHeaders
from changelog.contract.forms.moments import moment_text
from changelog.lines.forms.headers import Raw, as_json, header_text, ours
from changelog.lines.forms.shown import Show
from changelog.lines.forms.template import HEADER, Field

NULL = b"null"  # null as a token of JSON


class TopicRecord(Protocol):
    """A record as confluent-kafka gives it."""

    def topic(self) -> str | None: ...  # noqa: D102
    def partition(self) -> int | None: ...  # noqa: D102
    def offset(self) -> int | None: ...  # noqa: D102
    def key(self) -> Any: ...  # noqa: ANN401, D102
    def value(self) -> Any: ...  # noqa: ANN401, D102
    def headers(self) -> Any: ...  # noqa: ANN401, D102
    def timestamp(self) -> tuple[int, int]: ...  # noqa: D102


Column = Callable[[Sequence[TopicRecord]], Iterable[Any]]  # returns a field of each record


class Rendered(NamedTuple):
    """A batch as lines, up to the first record that cannot be shown."""

    lines: bytes  # of the records before the one at fault
    records: int  # how many these are
    fault: ChangelogError | None = None  # why the next one cannot be shown; None where all are


class LineRenderer:
    """Renders the records of a topic."""

    def __init__(self, pattern: bytes, columns: Sequence[tuple[str, Column]]) -> None:
        """Take the line with its places, and for each of these a name and how it is filled."""
        self._pattern = pattern
        self._columns = [column for _, column in columns]
        self._names = [name for name, _ in columns]

    def render(self, batch: Sequence[TopicRecord]) -> Rendered:
        """Return the lines of a batch, up to the first record that cannot be shown."""
        try:
            return Rendered(self._lines(batch), len(batch))
        except ChangelogError:
            return self._one_by_one(batch)

    def _lines(self, batch: Sequence[TopicRecord]) -> bytes:
        pattern = self._pattern
        if not self._columns:
            return (pattern % ()) * len(batch)
        rows = zip(*(column(batch) for column in self._columns), strict=True)
        return b"".join([pattern % row for row in rows])

    def _one_by_one(self, batch: Sequence[TopicRecord]) -> Rendered:
        lines = []
        for record in batch:
            try:
                lines.append(self._lines([record]))
            except ChangelogError as error:
                return Rendered(b"".join(lines), len(lines), self._fault(record, error))
        return Rendered(b"".join(lines), len(lines))

    def _fault(self, record: TopicRecord, error: ChangelogError) -> ChangelogError:
        """Return the error with its record and part; an error of a server stays as it is."""
        if not isinstance(error, CorruptRecordError):
            return error
        part = next(
            (
                name
                for name, column in zip(self._names, self._columns, strict=True)
                if _fails(column, record)
            ),
            "value",
        )
        fault = CorruptRecordError(
            f'topic "{record.topic()}", partition {record.partition()}, offset '
            f"{record.offset()}: the {part} cannot be shown: {error.args[0]}",
            hint=error.hint
            or f"`--{part}-as hex` shows it; `--partition {record.partition()} "
            f"--from {(record.offset() or 0) + 1}` goes on behind it",
        )
        fault.__cause__ = error
        return fault


def _fails(column: Column, record: TopicRecord) -> bool:
    try:
        list(column([record]))
    except CorruptRecordError:
        return True
    return False


def template_lines(
    parts: Sequence[bytes | Field],
    *,
    key: Show | None,
    value: Show | None,
    null: bytes,
    delimiter: bytes,
) -> LineRenderer:
    """Return the renderer of a template.

    Keys and values are shown as they are where `key` or `value` is None. `null` stands also for
    what a record does not have.
    """
    pattern, columns = b"", []
    for part in parts:
        if isinstance(part, Field):
            pattern += b"%b"
            columns.append((part.name, _field(part.name, key, value, null)))
        else:
            pattern += part.replace(b"%", b"%%")
    return LineRenderer(pattern + delimiter.replace(b"%", b"%%"), columns)


def json_lines(topic: str, *, key: Show, value: Show, delimiter: bytes) -> LineRenderer:
    """Return the renderer of records as objects of JSON, one a line; a null is a null."""
    pattern = b'{"topic":"%b"' % topic.encode() + (  # its characters need no escapes
        b',"partition":%d,"offset":%d,"timestamp":%d,"key":%b,"value":%b,"headers":%b}'
    )
    columns: list[tuple[str, Column]] = [
        ("partition", lambda batch: [record.partition() for record in batch]),
        ("offset", lambda batch: [record.offset() for record in batch]),
        ("timestamp", lambda batch: [record.timestamp()[1] for record in batch]),
        ("key", keys(key, NULL)),
        ("value", values(value, NULL)),
        ("headers", _headers),
    ]
    return LineRenderer(pattern + delimiter.replace(b"%", b"%%"), columns)


def keys(show: Show | None, null: bytes) -> Column:
    """Return the column of keys, where a null is what `null` says."""
    if show is None:
        return lambda batch: [null if (k := record.key()) is None else k for record in batch]
    return lambda batch: [null if (k := record.key()) is None else show(k) for record in batch]


def values(show: Show | None, null: bytes) -> Column:
    """Return the column of values, likewise."""
    if show is None:
        return lambda batch: [null if (v := record.value()) is None else v for record in batch]
    return lambda batch: [null if (v := record.value()) is None else show(v) for record in batch]


def _length(raw: bytes | None) -> int:
    """Return the size of a key or value as kcat says it: -1 of a null."""
    return -1 if raw is None else len(raw)


def _listed(headers: Raw | None) -> bytes:
    """Return headers as kcat lists them."""
    return b",".join(
        b"%b=%b"
        % (name.encode(), b"NULL" if v is None else v.encode() if isinstance(v, str) else v)
        for name, v in headers or ()
    )


def _headers(batch: Sequence[TopicRecord]) -> list[bytes]:
    return [as_json(record.headers()) for record in batch]


def _field(name: str, key: Show | None, value: Show | None, null: bytes) -> Column:
    if name == "key":
        return keys(key, null)
    if name == "value":
        return values(value, null)
    if name == "headers":
        return _headers
    if name.startswith(HEADER):
        header = name.removeprefix(HEADER)

        def one(batch: Sequence[TopicRecord]) -> list[bytes]:
            texts = [header_text(record.headers(), header) for record in batch]
            return [null if text is None else text for text in texts]

        return one
    if name in _OF_OURS:
        return _of_ours(_OF_OURS[name], null)
    return _SIMPLE[name]


def _of_ours(read: Callable[[RecordHeaders], str], null: bytes) -> Column:
    def of(batch: Sequence[TopicRecord]) -> list[bytes]:
        fields = [ours(record.headers()) for record in batch]
        return [null if field is None else read(field).encode() for field in fields]

    return of


_OF_OURS: dict[str, Callable[[RecordHeaders], str]] = {
    "position": lambda own: str(own.position),
    "lsn": lambda own: str(own.position.commit_lsn),
    "op": lambda own: own.op.value.decode(),
    "ts": lambda own: moment_text(own.ts_us),
}
_SIMPLE: dict[str, Column] = {
    "topic": lambda batch: [(record.topic() or "").encode() for record in batch],
    "partition": lambda batch: [b"%d" % (record.partition() or 0) for record in batch],
    "offset": lambda batch: [b"%d" % (record.offset() or 0) for record in batch],
    "timestamp": lambda batch: [b"%d" % record.timestamp()[1] for record in batch],
    "time": lambda batch: [
        moment_text(record.timestamp()[1], digits=3).encode() for record in batch
    ],
    "key_bytes": lambda batch: [b"%d" % len(record.key() or b"") for record in batch],
    "value_bytes": lambda batch: [b"%d" % len(record.value() or b"") for record in batch],
    # kcat's tokens of which we have no field: `kcat.TOKENS`.
    "key_length": lambda batch: [b"%d" % _length(record.key()) for record in batch],
    "value_length": lambda batch: [b"%d" % _length(record.value()) for record in batch],
    "value_length_packed": lambda batch: [
        _length(record.value()).to_bytes(4, "big", signed=True) for record in batch
    ],
    "headers_listed": lambda batch: [_listed(record.headers()) for record in batch],
}
