"""Rows in PostgreSQL's text form to JSON documents that lose nothing.

| PostgreSQL | JSON | note |
|---|---|---|
| null | null | |
| bool | true, false | |
| int2, int4, int8, oid | number | int8 has up to 19 digits: a reader has to keep all |
| float4, float8 | number | the shortest that reads back as the same; `"NaN"`, `"Infinity"` |
| numeric, any | string | PostgreSQL's digits: most readers would make a number a double |
| bytea | string | base64 with padding (RFC 4648, section 4) |
| date | string | `2024-01-31` |
| timestamp | string | `2024-01-31T12:34:56.789` |
| timestamptz | string | `2024-01-31T12:34:56.789+00:00`, always UTC |
| date, time outside of ISO 8601 | string | `infinity`, years of five digits, ` BC` behind |
| json, jsonb | string | PostgreSQL's text: as a part of the document its numbers would change |
| arrays with one dimension from 1 | array | of the elements' forms; a null is null |
| arrays of other shape | string | PostgreSQL's text: `[0:1]={1,2}`, `{{1},{2}}` |
| everything else | string | PostgreSQL's text |

Every string but that of bytea reads back in PostgreSQL as the value that it was. What a column is,
the schema topic says (`changelog.sink.schema_topic`). A document has no blanks, its columns stand
in the table's order and those of a key in the key's, and characters stand for themselves (RFC
8259, UTF-8) but for quotes, backslashes and control characters: the same value always has the
same bytes, as the keys of a compacted topic need it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from json.encoder import encode_basestring

from changelog.contract.base.errors import EncodeError
from changelog.contract.rows.codec import refused
from changelog.contract.rows.relation import (
    UNCHANGED,
    Column,
    Field,
    KeyRow,
    Relation,
    Row,
    Unchanged,
)
from changelog.contract.rows.text import parse_array
from changelog.contract.rows.types import ColumnType, Kind

Writer = Callable[[bytes], str]  # returns the JSON text of a value that is not null

NULL = "null"

_BOOLEANS = {b"t": "true", b"f": "false"}
_NO_NUMBERS = {b"NaN", b"Infinity", b"-Infinity"}
_FLOAT_MARKS = frozenset(".eE")
_UTC = "+00"


def quoted(text: str) -> str:
    """Return a JSON string."""
    return encode_basestring(text)


def _string(raw: bytes) -> str:
    return encode_basestring(raw.decode("utf-8"))


def _boolean(raw: bytes) -> str:
    try:
        return _BOOLEANS[raw]
    except KeyError:
        raise EncodeError(f"boolean {raw!r} is neither t nor f") from None


def _integer(raw: bytes) -> str:
    return str(int(raw))


def _float(raw: bytes) -> str:
    text = raw.decode("ascii")
    if raw in _NO_NUMBERS:
        return f'"{text}"'
    float(text)  # raises for what is no number
    # Whole ones too: a reader that takes them for integers would lose the sign of `-0`.
    return text if _FLOAT_MARKS & {*text} else f"{text}.0"


def _bytea(raw: bytes) -> str:
    if raw[:2] != b"\\x":
        raise EncodeError("bytea is not in hex form: the session's bytea_output is not hex")
    return f'"{b64encode(bytes.fromhex(raw[2:].decode("ascii"))).decode("ascii")}"'


def _timestamp(raw: bytes) -> str:
    return f'"{raw.decode("ascii").replace(" ", "T", 1)}"'


def _timestamptz(raw: bytes) -> str:
    text = raw.decode("ascii")
    if text.endswith("infinity"):
        return f'"{text}"'
    era = " BC" if text.endswith(" BC") else ""
    moment = text.removesuffix(era)
    if not moment.endswith(_UTC):
        raise EncodeError(f"timestamp {text} is not in UTC: the session's timezone is not")
    return f'"{moment.replace(" ", "T", 1)}:00{era}"'


def _array(element: Writer, delimiter: bytes) -> Writer:
    def write(raw: bytes) -> str:
        items = parse_array(raw, delimiter)
        if items is None:
            return _string(raw)
        return f"[{','.join(NULL if item is None else element(item) for item in items)}]"

    return write


_SIMPLE: dict[Kind, Writer] = {
    Kind.BOOLEAN: _boolean,
    Kind.INT: _integer,
    Kind.LONG: _integer,
    Kind.FLOAT: _float,
    Kind.DOUBLE: _float,
    Kind.DECIMAL: _string,
    Kind.STRING: _string,
    Kind.BYTES: _bytea,
    Kind.DATE: _string,
    Kind.TIMESTAMP: _timestamp,
    Kind.TIMESTAMPTZ: _timestamptz,
    Kind.UUID: _string,
}


def value_writer(kind: ColumnType) -> Writer:
    """Return the function that turns a column's text into JSON; null is the caller's."""
    if kind.kind is not Kind.ARRAY:
        return _SIMPLE[kind.kind]
    assert kind.element is not None  # noqa: S101 - array_type always sets it
    return _array(_SIMPLE[kind.element.kind], kind.delimiter.encode())


def joined(members: Iterable[str]) -> str:
    """Return a JSON object of members, each `"name":value`."""
    return f"{{{','.join(members)}}}"


class Documents:
    """Writes rows and keys of one relation version.

    A value without an exact form raises EncodeError, which names table and column.
    """

    def __init__(self, relation: Relation, *, prefix: str = "") -> None:
        """Prepare; `prefix` is put before each column's name."""
        self.relation = relation
        self._columns = [
            (column, f"{quoted(prefix + column.name)}:", value_writer(column.type))
            for column in relation.columns
        ]
        self._key = [self._columns[index] for index in relation.key_indexes]

    def members(self, row: Row) -> list[str]:
        """Return the members of a whole row."""
        return self._written(self._columns, row)

    def known_members(self, row: Row) -> list[str]:
        """Return the members of a row but for values that the stream left out."""
        pairs = zip(self._columns, row, strict=True)
        pairs_sent = [(column, field) for column, field in pairs if field is not UNCHANGED]
        return self._written(
            [column for column, _ in pairs_sent], [field for _, field in pairs_sent]
        )

    def key_members(self, key: KeyRow) -> list[str]:
        """Return the members of a key."""
        return self._written(self._key, key)

    def _written(
        self, columns: Sequence[tuple[Column, str, Writer]], fields: Sequence[Field | Unchanged]
    ) -> list[str]:
        members = []
        for (column, name, write), field in zip(columns, fields, strict=True):
            if field is None:
                members.append(name + NULL)
                continue
            if not isinstance(field, bytes):
                raise refused(self.relation, column, "a TOAST value not fetched")
            try:
                members.append(name + write(field))
            except (ValueError, IndexError, EncodeError) as error:
                raise refused(self.relation, column, f"no exact JSON form: {error}") from error
        return members


class DocumentCodec:
    """Encodes keys and rows of one relation version as JSON documents; raises as `Documents`."""

    def __init__(self, relation: Relation) -> None:
        self.relation = relation
        self._documents = Documents(relation)

    def encode_key(self, key: KeyRow) -> bytes:
        """Encode a primary key."""
        return joined(self._documents.key_members(key)).encode("utf-8")

    def encode_value(self, row: Row) -> bytes:
        """Encode a whole row.

        Raises EncodeError: a value has no exact form, or is an unchanged TOAST value that was not
        fetched; names table and column.
        """
        return joined(self._documents.members(row)).encode("utf-8")
