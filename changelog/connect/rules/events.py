"""What a record asks of a table: rows, envelopes of changes, Debezium's, flattened, tombstones.

Numbers keep their digits: Python's floats never see them. PostgreSQL reads the values by the types
of the columns. A value that Debezium's source did not send is left out of its row.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from changelog.connect.rules.reading import JSON, BadRecordError, Reading
from changelog.connect.rules.settings import Mode, PkMode, SinkSettings
from changelog.contract.forms.declared import PLACEHOLDER

_OPS = {"c", "r", "u", "d"}
_DELETED, _MARK = "__deleted", "__"
_PLACEHOLDER_BYTES = b64encode(PLACEHOLDER.encode()).decode()


@dataclass(frozen=True, slots=True)
class Insert:
    """Append a row."""

    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Upsert:
    """Write a row by its key, whose columns are in it."""

    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the row with a key, by column."""

    key: Mapping[str, Any]


Operation = Insert | Upsert | Delete


def operations(
    settings: SinkSettings, key: bytes | None, value: bytes | None, reading: Reading = JSON
) -> list[Operation]:
    """Return what a record asks for, in order; empty where it is left out as the settings say.

    Raises:
        BadRecordError: it has no row, no key, or asks for what the settings do not allow.
        LogError: the registry refuses, or does not answer.
    """
    said = None if value is None else reading.read(value, "value")
    record = _Record(settings, key, reading)
    if said is None:
        return record.deleted(record.key_of_record)
    if not isinstance(said, dict):
        raise BadRecordError("the value is no object")
    if "op" in said and ("after" in said or "before" in said):
        return _change(record, said)
    if _DELETED in said and str(said[_DELETED]).lower() == "true":
        return record.deleted(lambda: record.key_of(said))
    return [record.row(said)]


def _change(record: _Record, said: dict[str, Any]) -> list[Operation]:
    settings = record.settings
    op, before, after = said["op"], said.get("before"), said.get("after")
    if op not in _OPS:
        raise BadRecordError("the envelope's op is none of c, r, u and d")
    if op == "d":
        return record.deleted(lambda: record.key_of(before))
    if not isinstance(after, dict):
        raise BadRecordError(f"the envelope's op is {op} and it has no row in after")
    if not settings.keyed and op == "u":
        raise BadRecordError("an update needs writeMode upsert or update")
    row = record.row(after)
    if settings.keys and op == "u" and isinstance(before, dict):
        old = {name: before[name] for name in settings.keys if before.get(name) is not None}
        if len(old) == len(settings.keys) and any(old[name] != row.row[name] for name in old):
            if settings.mode is Mode.UPDATE:
                raise BadRecordError("an update of the key needs writeMode upsert")
            return [Delete(old), row]
    return [row]


@lru_cache(maxsize=1000)
def _names(fields: tuple[str, ...], columns: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the fields that are written, None for all."""
    if columns:
        return tuple(name for name in columns if name in fields)
    marked = any(name.startswith(_MARK) for name in fields)
    return tuple(name for name in fields if not name.startswith(_MARK)) if marked else None


@dataclass(frozen=True, slots=True)
class _Record:
    """A record's key, beside how rows are made."""

    settings: SinkSettings
    key: bytes | None
    reading: Reading

    def deleted(self, key: Callable[[], dict[str, Any]]) -> list[Operation]:
        if self.settings.deletes is None:
            raise BadRecordError(
                "a delete needs writeMode upsert or update, or delete.enabled false to leave it out"
            )
        return [Delete(key())] if self.settings.deletes else []

    def row(self, said: dict[str, Any]) -> Insert | Upsert:
        names = _names(tuple(said), self.settings.columns)
        row = said if names is None else {name: said[name] for name in names}
        if PLACEHOLDER in row.values() or _PLACEHOLDER_BYTES in row.values():
            row = self._without_unsent(row)
        if self.settings.pk_mode is not PkMode.NONE:
            row = {**row, **self.key_of(said)}
        if not row:
            raise BadRecordError("the value has no field of a column")
        return Upsert(row) if self.settings.keyed else Insert(row)

    def _without_unsent(self, row: dict[str, Any]) -> dict[str, Any]:
        if not self.settings.keyed:
            raise BadRecordError("it lacks a value that its source did not send")
        unsent = (PLACEHOLDER, _PLACEHOLDER_BYTES)
        return {name: value for name, value in row.items() if value not in unsent}

    def key_of(self, said: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
        if self.settings.pk_mode is PkMode.RECORD_KEY:
            return self.key_of_record()
        if not isinstance(said, dict):
            raise BadRecordError("there is no row in before that has the key")
        return self._picked(said, "value")

    def key_of_record(self) -> dict[str, Any]:
        if self.key is None:
            raise BadRecordError("the record has no key")
        keys = self.settings.keys
        try:
            said = self.reading.read(self.key, "key")
        except BadRecordError:  # a key of text, as the StringConverter writes it
            if len(keys) != 1 or self.key[:1] == b"\0":
                raise
            try:
                said = self.key.decode()
            except UnicodeDecodeError:
                raise BadRecordError("the key is no text") from None
        if len(keys) == 1 and not isinstance(said, dict):
            said = {keys[0]: said}
        return self._picked(said, "key")

    def _picked(self, said: Any, what: str) -> dict[str, Any]:  # noqa: ANN401
        if not isinstance(said, dict) or not said:
            raise BadRecordError(f"the {what} is no object with the fields of pk.fields")
        names = self.settings.keys or said.keys()
        for name in names:
            if said.get(name) is None:
                raise BadRecordError(f"the {what} has no {name}, a column of the key")
        return {name: said[name] for name in names}
