"""Turns records into operations on rows: plain rows, change envelopes, flat changes, tombstones.

Numbers keep their digits: they never become Python floats. PostgreSQL reads the values by the types
of the columns. A value that Debezium's source did not send is left out of its row.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import md5
from typing import Any
from uuid import UUID

from changelog.connect.rules.records.reading import JSON, BadRecordError, RecordReading
from changelog.connect.rules.settings import PkMode, SinkConnectorSettings, WriteMode
from changelog.contract.forms.declared import PLACEHOLDER
from changelog.contract.forms.moments import date_text

_OPS = {"c", "r", "u", "d"}
_NEEDS = "needs pk.fields or pk.mode record_key"
_DELETED, _MARK = "__deleted", "__"
_RAW = PLACEHOLDER.encode()
_TEXTS = (PLACEHOLDER, b64encode(_RAW).decode(), json.dumps({PLACEHOLDER: PLACEHOLDER}))
_UUID = UUID(bytes=md5(_RAW, usedforsecurity=False).digest(), version=3)
_NESTED: tuple[Any, ...] = (
    *([type_name] for type_name in (*_TEXTS, str(_UUID))),
    [*_RAW],
    [*map(date_text, _RAW)],
    {PLACEHOLDER: PLACEHOLDER},
)
"""Placeholders that Debezium writes for a value that it did not get, by type (decision 0037)."""


@dataclass(frozen=True, slots=True)
class InsertRow:
    """Append a row."""

    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UpsertRow:
    """Write a row by its key; the row has the key's columns."""

    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeleteRow:
    """Delete the row with a key."""

    key: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MoveRow:
    """Change the key and values of a row; columns that are left out keep their values."""

    key: Mapping[str, Any]
    row: Mapping[str, Any]


Operation = InsertRow | UpsertRow | DeleteRow | MoveRow


@lru_cache(maxsize=1000)
def _names(fields: tuple[str, ...], columns: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the fields that are written, or None if all are."""
    if columns:
        return tuple(name for name in columns if name in fields)
    marked = any(name.startswith(_MARK) for name in fields)
    return tuple(name for name in fields if not name.startswith(_MARK)) if marked else None


class Events:
    """Turns the records of a connector into operations."""

    def __init__(self, settings: SinkConnectorSettings, reading: RecordReading = JSON) -> None:
        self._settings, self._reading = settings, reading
        self._keys, self._columns = settings.keys, settings.columns
        self._in_value = settings.pk_mode is PkMode.RECORD_VALUE
        self._in_key = settings.pk_mode is PkMode.RECORD_KEY
        self._has_key = settings.pk_mode is not PkMode.NONE

    def operations(self, key: bytes | None, value: bytes | None) -> list[Operation]:
        """Return the operations that a record asks for; none if the settings leave it out.

        Raises BadRecordError: the record has no row or no key, or the settings do not allow its
        operation; LogError: the registry refuses, or does not answer.
        """
        decoded = None if value is None else self._reading.read(value, "value")
        if decoded is None:
            return self._deleted(lambda: self._key_of_record(key))
        if not isinstance(decoded, dict):
            raise BadRecordError("the value is not an object")
        if "op" in decoded and ("after" in decoded or "before" in decoded):
            return self._change(key, decoded)
        if _DELETED in decoded and str(decoded[_DELETED]).lower() == "true":
            return self._deleted(lambda: self._key(key, decoded))
        return [self._row(key, decoded)]

    def _change(self, key: bytes | None, decoded: dict[str, Any]) -> list[Operation]:
        op, before, after = decoded["op"], decoded.get("before"), decoded.get("after")
        if op not in _OPS:
            raise BadRecordError("the envelope's op is not c, r, u or d")
        if op == "d":
            return self._deleted(lambda: self._key(key, before))
        if not isinstance(after, dict):
            raise BadRecordError(f"the envelope's op is {op} and it has no row in after")
        if not self._has_key and op == "u":
            raise BadRecordError(f"an update {_NEEDS}")
        row = self._row(key, after, is_update=op == "u")
        if op == "u" and isinstance(before, dict):
            names = self._keys or tuple(self._key_of_record(key))
            old = {name: before[name] for name in names if before.get(name) is not None}
            # The record's key may be the old one or the new one; `after` has the new one.
            new = {name: after.get(name, row.row[name]) for name in names}
            if len(old) == len(names) and old != new:
                if self._settings.mode is WriteMode.UPDATE:
                    raise BadRecordError("an update of the key needs writeMode upsert")
                return [MoveRow(old, {**row.row, **new})]
        return [row]

    def _deleted(self, key: Callable[[], dict[str, Any]]) -> list[Operation]:
        if self._settings.deletes is None:
            raise BadRecordError(f"a delete {_NEEDS}, or delete.enabled false to leave it out")
        return [DeleteRow(key())] if self._settings.deletes else []

    def _row(
        self, key: bytes | None, decoded: dict[str, Any], *, is_update: bool = False
    ) -> InsertRow | UpsertRow:
        keyed = is_update or self._settings.keyed
        names = _names(tuple(decoded), self._columns)
        row = decoded if names is None else {name: decoded[name] for name in names}
        if any(map(_is_unsent, row.values())):
            row = self._without_unsent(row, keyed=keyed)
        if self._in_value:
            for name in self._keys:
                if row.get(name) is None:
                    raise _keyless("value", name)
        elif self._in_key:
            row = {**row, **self._key_of_record(key)}
        if not row:
            raise BadRecordError("the value has no field that is written to a column")
        return UpsertRow(row) if keyed else InsertRow(row)

    def _without_unsent(self, row: dict[str, Any], *, keyed: bool) -> dict[str, Any]:
        if not keyed:
            raise BadRecordError("the record lacks a value that Debezium's source did not send")
        return {name: value for name, value in row.items() if not _is_unsent(value)}

    def _key(self, key: bytes | None, decoded: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
        if self._in_key:
            return self._key_of_record(key)
        if not isinstance(decoded, dict):
            raise BadRecordError("the envelope has no row in before, which would have the key")
        return self._picked(decoded, "value")

    def _key_of_record(self, key: bytes | None) -> dict[str, Any]:
        if key is None:
            raise BadRecordError(
                "the record has no key"
                + ("" if self._keys else ": set pk.fields to columns of the value to use them")
            )
        try:
            decoded = self._reading.read(key, "key")
        except BadRecordError:  # the StringConverter writes a key as plain text
            if len(self._keys) != 1 or key[:1] == b"\0":
                raise
            try:
                decoded = key.decode()
            except UnicodeDecodeError:
                raise BadRecordError("the key is not text") from None
        if len(self._keys) == 1 and not isinstance(decoded, dict):
            decoded = {self._keys[0]: decoded}
        return self._picked(decoded, "key")

    def _picked(self, decoded: Any, part: str) -> dict[str, Any]:  # noqa: ANN401
        if not isinstance(decoded, dict) or not decoded:
            raise BadRecordError(f"the {part} is not an object with the fields of pk.fields")
        names = self._keys or tuple(decoded)
        for name in names:
            if decoded.get(name) is None:
                raise _keyless(part, name)
        return {name: decoded[name] for name in names}


def _is_unsent(value: Any) -> bool:  # noqa: ANN401 - any JSON
    kind = type(value)
    return (kind is str and value in _TEXTS) or (kind in {list, dict} and value in _NESTED)


def _keyless(part: str, name: str) -> BadRecordError:
    return BadRecordError(f"the {part} has no {name}, a column of the key")
