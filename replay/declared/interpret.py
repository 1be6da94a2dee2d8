"""Records of declared logs -> statements about keys. Pure; runs in Spark's Python workers.

A record makes one statement or two: a key has this row now; a key is deleted; or, for an update
that changed the key, the old key is deleted and the new one has this row. A record that can be read
as none of these is a fault, described in a text; where its key can be read, the statement names it,
so that it is known which row is in doubt.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from changelog.avro.bodies import MALFORMED, BodyReader, bare
from changelog.avro.rows import default_of
from changelog.contract.base.errors import ChangelogError
from changelog.contract.forms.declared import (
    DIGITS,
    MILLIS,
    DeclaredLog,
    Order,
    ValueShape,
    avro_columns,
)
from changelog.contract.rows.codec import unframe
from changelog.contract.rows.evolution import type_fits
from changelog.contract.rows.schema import LoggedColumn
from changelog.contract.rows.types import ColumnType
from replay.declared.exact import FaultyRecordError, loads, reader

Row = list[Any]
"""A value for each column: plain numbers and texts, bytes, Decimal; dates as days since 1970 and
timestamps as microseconds."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a record about a key."""

    key: str | None  # canonical text of the key's values; None where it cannot be read
    row: Row | None = None  # the row that it has now; None when it is gone, or at fault
    lsn: int | None = None  # the source's position; None where the record has none
    is_tombstone: bool = False  # whether the record has no value
    fault: str | None = None  # why the record cannot be read, or None
    missing: tuple[int, ...] = ()  # places of the columns in `row` whose value the source left out
    # whether the row is new under its key, so that no older record of the key has what is missing
    begins: bool = False


_MALFORMED = (*MALFORMED, InvalidOperation, ChangelogError)
_INTEGER = re.compile(r"-?\d{1,18}")
# Debezium's letters of operations: delete; read, create and update; update alone.
_DELETE, _WITH_ROW, _UPDATE = "d", frozenset("rcu"), "u"
# The values of a marker of deletes, as JSON, Debezium and PostgreSQL write booleans.
_MARKS: Mapping[Any, bool] = {
    True: True,
    False: False,
    "true": True,
    "false": False,
    "t": True,
    "f": False,
}


class Interpreter:
    """Reads the records of one log.

    `keys`, `values`: their schemas by id, Avro's as texts, Protobuf's compiled; empty in JSON.
    """

    def __init__(
        self,
        log: DeclaredLog,
        columns: Sequence[LoggedColumn],
        keys: Mapping[int, str],
        values: Mapping[int, str],
    ) -> None:
        self._log = log
        self._columns = tuple(columns)
        self._keys, self._values = keys, values
        self._bodies: dict[int, BodyReader] = {}
        self._messages: dict[int, Any] = {}
        self._obstacles: dict[int, str] = {}
        self._is_protobuf = log.shape is ValueShape.FLAT_PROTOBUF
        # Keys that are texts or JSON stand beside values of Protobuf, too.
        self._plain_keys = not log.shape.is_avro and not (self._is_protobuf and keys)
        self._readers = [
            _same if self._is_protobuf else reader(column, avro=log.shape.is_avro)
            for column in self._columns
        ]
        places = {column.column: place for place, column in enumerate(self._columns)}
        self._key_places = [places[name] for name in log.key]
        self._placeholder = _Placeholder(log.placeholder if log.leaves_out else "")

    def statements(self, key: bytes | None, value: bytes | None) -> list[Statement]:
        """Return a record's statements in order; a faulty record has a single one."""
        record_key: str | None = None
        try:
            if value is None:
                return [Statement(self._key_of_record(key), is_tombstone=True)]
            try:
                return self._of_document(key, value)
            except (*_MALFORMED, FaultyRecordError) as error:
                reason = _why(error)
                if key is not None:
                    record_key = self._key_of_record(key)
                return [Statement(record_key, fault=reason)]
        except (*_MALFORMED, FaultyRecordError) as error:
            part = "the tombstone's key" if value is None else "the value and the key"
            return [Statement(None, fault=f"{part} cannot be read: {_why(error)}")]

    def _of_document(self, key: bytes | None, value: bytes) -> list[Statement]:
        document, schema_id = self._decoded(value, self._values)
        if document is None:
            return [Statement(self._key_of_record(key), is_tombstone=True)]
        if schema_id is not None:
            self._check_version(schema_id)
        if self._log.shape.is_flat:
            return self._of_row(key, document)
        before, after = document.get("before"), document.get("after")
        op = document.get("op")
        lsn = self._lsn(document)
        if op == _DELETE:
            if before is not None and self._has_key(before):
                return [Statement(self._key_in(before), lsn=lsn)]
            return [Statement(self._key_of_record(key), lsn=lsn)]
        if op not in _WITH_ROW:
            raise FaultyRecordError(f"the event's operation is {op!r}")
        if not isinstance(after, dict):
            raise FaultyRecordError("the event has no row after the change")
        row, missing = self._row(after)
        own = self._key_text(row, missing)
        statement = Statement(own, row, lsn, missing=missing, begins=op != _UPDATE)
        if before is not None and self._has_key(before) and self._key_in(before) != own:
            if self._log.shape is ValueShape.CUD_JSON and not self._log.key_changes:
                raise FaultyRecordError(
                    "the update changes the key, which `key_changes = false` denies"
                )
            return [Statement(self._key_in(before), lsn=lsn), statement]
        return [statement]

    def _of_row(self, key: bytes | None, document: Mapping[str, Any]) -> list[Statement]:
        mark = self._log.delete
        if mark and _is_marked(document, mark):
            if self._has_key(document):
                return [Statement(self._key_in(document))]
            return [Statement(self._key_of_record(key))]
        row, missing = self._row(document)
        return [Statement(self._key_text(row, missing), row, missing=missing)]

    def _decoded(
        self, raw: bytes, schemas: Mapping[int, str]
    ) -> tuple[dict[str, Any] | None, int | None]:
        if not self._log.shape.is_registered:
            return _payload(loads(raw)), None
        schema_id, _ = unframe(raw)
        if schema_id not in schemas:
            raise FaultyRecordError(f"its schema id {schema_id} is not of the topic's subject")
        if self._is_protobuf:
            return self._message(raw, schemas[schema_id]), schema_id
        if schema_id not in self._bodies:
            self._bodies[schema_id] = BodyReader(bare(json.loads(schemas[schema_id])))
        document, left_over = self._bodies[schema_id].read(raw)
        if left_over:
            raise FaultyRecordError("bytes are left over behind the record")
        return (document if isinstance(document, dict) else {"": document}), schema_id

    def _message(self, raw: bytes, descriptors: str) -> dict[str, Any]:
        from changelog.protobuf.messages import RowTypes, split  # noqa: PLC0415 - of an extra

        schema_id, path, body = split(raw)
        if schema_id not in self._messages:
            self._messages[schema_id] = RowTypes(descriptors)
        row: dict[str, Any] = self._messages[schema_id].row(body, path)
        return row

    def _check_version(self, schema_id: int) -> None:
        """Refuse a record whose columns had other types than they have now."""
        if schema_id not in self._obstacles:
            old = {c.column: c for c in columns_of(self._values[schema_id], self._log.shape)}
            self._obstacles[schema_id] = "; ".join(
                f'column "{new.column}" was {old[new.column].type.name}, is {new.type.name}'
                for new in self._columns
                if new.column in old
                and not (
                    type_fits(old[new.column].type, new.type)
                    and _unit(old[new.column].type) == _unit(new.type)
                )
            )
        if self._obstacles[schema_id]:
            raise FaultyRecordError(self._obstacles[schema_id])

    def _row(self, document: Mapping[str, Any]) -> tuple[Row, tuple[int, ...]]:
        """Return the row, and the places whose value was left out."""
        row, missing = [], []
        for column, read in zip(self._columns, self._readers, strict=True):
            item = document.get(column.column)
            if item is None:
                is_new = column.column not in document and column.default is not None
                row.append(read(default_of(column)) if is_new else None)
                continue
            is_there = not self._placeholder.is_here(item)
            if not is_there:
                missing.append(len(row))
            try:
                row.append(read(item))
            except (*_MALFORMED, FaultyRecordError) as error:
                if is_there:
                    raise FaultyRecordError(f'column "{column.column}": {_why(error)}') from error
                row.append(None)  # a placeholder that the type cannot hold
        return row, tuple(missing)

    def _has_key(self, document: object) -> bool:
        return isinstance(document, dict) and all(
            document.get(name) is not None for name in self._log.key
        )

    def _key_in(self, document: Mapping[str, Any], *, is_json: bool = False) -> str:
        return _canonical(
            [
                (reader(column, avro=False) if is_json else self._readers[place])(
                    document[column.column]
                )
                for place in self._key_places
                for column in [self._columns[place]]
            ]
        )

    def _key_text(self, row: Row, missing: Sequence[int]) -> str:
        values = [row[place] for place in self._key_places]
        if any(value is None for value in values) or {*missing} & {*self._key_places}:
            raise FaultyRecordError(
                f"a column of the key ({', '.join(self._log.key)}) is not there"
            )
        return _canonical(values)

    def _key_of_record(self, key: bytes | None) -> str:
        if key is None:
            raise FaultyRecordError("the record has no key")
        document: dict[str, Any] | None = None
        if self._plain_keys:
            document = _key_document(key, self._log.key)
        else:
            document, _ = self._decoded(key, self._keys)
        if document is not None and set(document) == {""} and len(self._log.key) == 1:
            document = {self._log.key[0]: document[""]}
        if document is None or not self._has_key(document):
            raise FaultyRecordError(f"the record's key has not all of {', '.join(self._log.key)}")
        return self._key_in(document, is_json=self._is_protobuf and self._plain_keys)

    def _lsn(self, document: Mapping[str, Any]) -> int | None:
        source = document.get("source")
        lsn = source.get("lsn") if isinstance(source, dict) else None
        if self._log.order is Order.LSN:
            if lsn is None:
                raise FaultyRecordError(
                    "it has no source.lsn, by which the log is declared to be ordered"
                )
            return int(lsn)
        # In a log ordered by offsets it only pairs the delete and the create of a key change.
        return int(str(lsn)) if _INTEGER.fullmatch(str(lsn)) else None


def columns_of(schema: str, shape: ValueShape) -> tuple[LoggedColumn, ...]:
    """Return the columns of rows under a schema, Avro's as a text, Protobuf's compiled.

    Raises CorruptRecordError: it is not of that shape, or a column's type has no exact form.
    """
    if shape is ValueShape.FLAT_PROTOBUF:
        from changelog.protobuf.messages import RowTypes  # noqa: PLC0415 - of an extra

        return RowTypes(schema).columns
    return avro_columns(schema, shape)


def _same(value: Any) -> Any:  # noqa: ANN401 - a value of any type
    return value


def _unit(kind: ColumnType) -> str:
    """Return the unit of a type's bare values, if its kind does not imply it."""
    return kind.name if kind.name in {MILLIS, DIGITS} else ""


def _why(error: Exception) -> str:
    return str(error.args[0]) if error.args else type(error).__name__


def _is_marked(document: Mapping[str, Any], mark: str) -> bool:
    value = document.get(mark)
    if value is None and mark not in document:
        raise FaultyRecordError(f'it has no marker "{mark}"')
    try:
        return _MARKS[value]
    except (KeyError, TypeError):
        raise FaultyRecordError(
            f'its marker "{mark}" is {value!r}, neither true nor false'
        ) from None


def _is_wrapped(document: Any) -> bool:  # noqa: ANN401 - JSON
    return isinstance(document, dict) and set(document) == {"schema", "payload"}


def _payload(document: Any) -> dict[str, Any] | None:  # noqa: ANN401 - JSON
    """Take a document out of its wrapper with a schema, if it has one.

    Kafka Connect's converter writes the tombstones of `ExtractNewRecordState` as JSON's null.
    """
    if _is_wrapped(document):
        document = document["payload"]
    if document is not None and not isinstance(document, dict):
        raise FaultyRecordError("the value is not a JSON object")
    return document


def _key_document(key: bytes, names: Sequence[str]) -> dict[str, Any]:
    """Read a JSON key: an object, or of one column its bare value or text."""
    try:
        document = loads(key)
    except ValueError:
        document = key.decode("utf-8")
    if _is_wrapped(document):
        document = document["payload"]
    return (
        document if isinstance(document, dict) else {names[0]: document} if len(names) == 1 else {}
    )


def _canonical(values: Sequence[Any]) -> str:
    """Return a text that two keys share exactly when their values are equal."""
    return json.dumps([_canonical_value(value) for value in values], ensure_ascii=False)


def _canonical_value(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, Decimal) else value


# PostgreSQL leaves a TOASTed column out of an update that does not touch it. Debezium puts a
# text in its place (`unavailable.value.placeholder`), in a form that the column's type can hold
# (`UnchangedToastedPlaceholder` of its connector). A real value of the same form looks the same.
class _Placeholder:
    """A placeholder for a value that was not sent, in every form; an empty text matches nothing."""

    def __init__(self, text: str) -> None:
        raw = text.encode()
        encoded = base64.b64encode(raw).decode()
        # As Java's `UUID.nameUUIDFromBytes` does.
        number = str(uuid.UUID(bytes=hashlib.md5(raw, usedforsecurity=False).digest(), version=3))
        self._is_set = bool(text)
        self._texts = {text, encoded, _json_text({text: text})}
        self._lengths = {len(form) for form in self._texts}
        self._items = {text, encoded, number}
        self._raw = raw
        self._numbers = [byte - 256 if byte > 127 else byte for byte in raw]  # noqa: PLR2004 - signed
        self._map = {text: text}

    def is_here(self, value: Any) -> bool:  # noqa: ANN401 - a value as its record has it
        """Tell whether a value of a record is the placeholder."""
        match value:
            case _ if not self._is_set:
                return False
            case str():
                # By the length first: a long text need not be hashed.
                return len(value) in self._lengths and value in self._texts
            case [str() | bytes() as item]:
                return item == self._raw or item in self._items
            case list():
                return len(value) == len(self._numbers) and self._are_bytes(value)
            case _:
                return value in (self._raw, self._map)

    def _are_bytes(self, value: list[Any]) -> bool:
        # Numbers of JSON are still texts.
        return [str(item) for item in value] == [str(number) for number in self._numbers]


def _json_text(members: dict[str, str]) -> str:
    return json.dumps(members, ensure_ascii=False, separators=(",", ":"))
