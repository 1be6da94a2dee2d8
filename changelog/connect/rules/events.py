"""What a record asks of a table: rows, envelopes of changes, Debezium's, flattened, tombstones.

Numbers keep their digits: Python's floats never see them. A row goes to PostgreSQL as JSON, which
reads it by the types of the columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import orjson

from changelog.connect.rules.settings import PkMode, SinkSettings

_SAFE_DIGITS = 18  # orjson writes 64-bit integers and no longer ones
_OPS = {"c", "r", "u", "d"}
_DELETED, _MARK = "__deleted", "__"


class BadRecordError(Exception):
    """A record cannot be written as asked; the message says why and quotes no value."""


class Number(str):
    """A number as it is written."""

    __slots__ = ()


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


def parse_json(raw: bytes, what: str) -> Any:  # noqa: ANN401 - any JSON
    """Read JSON; numbers beyond 64 bits or with a fraction are `Number`.

    Raises:
        BadRecordError: it is no JSON.
    """
    try:
        return json.loads(
            raw.decode(),
            parse_float=Number,
            parse_int=_whole,
            parse_constant=_no_number,
            object_pairs_hook=_object,
        )
    except (ValueError, RecursionError):
        raise BadRecordError(f"the {what} is no JSON") from None


def _whole(text: str) -> int | Number:
    return int(text) if len(text) <= _SAFE_DIGITS else Number(text)


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name twice")
    return made


def json_of(value: object) -> bytes:
    """Return JSON with the digits that were read.

    Raises:
        BadRecordError: a text is no Unicode: half of a surrogate pair.
    """
    try:
        return orjson.dumps(value, default=_digits, option=orjson.OPT_PASSTHROUGH_SUBCLASS)
    except TypeError:
        raise BadRecordError("a text is no Unicode, or the value nests too deeply") from None


def _digits(value: object) -> orjson.Fragment:
    if isinstance(value, Number):
        return orjson.Fragment(value.encode())
    raise TypeError


def operations(settings: SinkSettings, key: bytes | None, value: bytes | None) -> list[Operation]:
    """Return what a record asks for, in order; empty where it is left out as the settings say.

    Raises:
        BadRecordError: it has no row, no key, or asks for what the settings do not allow.
    """
    said = None if value is None else _payload(parse_json(value, "value"))
    if said is None:
        return _deleted(settings, lambda: _key_of_record(settings, key))
    if not isinstance(said, dict):
        raise BadRecordError("the value is no object")
    if "op" in said and ("after" in said or "before" in said):
        return _change(settings, key, said)
    if str(said.get(_DELETED, "")).lower() == "true":
        return _deleted(settings, lambda: _key(settings, key, said))
    return [_row(settings, key, said)]


def _payload(said: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return what is inside the JSON converter's pair of schema and payload."""
    is_pair = isinstance(said, dict) and said.keys() == {"schema", "payload"}
    return said["payload"] if is_pair else said


def _change(settings: SinkSettings, key: bytes | None, said: dict[str, Any]) -> list[Operation]:
    op, before, after = said["op"], said.get("before"), said.get("after")
    if op not in _OPS:
        raise BadRecordError("the envelope's op is none of c, r, u and d")
    if op == "d":
        return _deleted(settings, lambda: _key(settings, key, before))
    if not isinstance(after, dict):
        raise BadRecordError(f"the envelope's op is {op} and it has no row in after")
    if not settings.upsert and op == "u":
        raise BadRecordError("an update needs writeMode upsert")
    row = _row(settings, key, after)
    if op == "u" and isinstance(before, dict) and set(settings.keys) <= before.keys():
        old = {name: before[name] for name in settings.keys}
        if any(old[name] != row.row[name] for name in settings.keys):
            return [Delete(old), row]
    return [row]


def _deleted(settings: SinkSettings, key: Any) -> list[Operation]:  # noqa: ANN401 - of no argument
    if settings.deletes is None:
        raise BadRecordError(
            "a delete needs writeMode upsert, or delete.enabled false to leave it out"
        )
    return [Delete(key())] if settings.deletes else []


def _row(settings: SinkSettings, key: bytes | None, said: dict[str, Any]) -> Insert | Upsert:
    names = settings.columns or [name for name in said if not name.startswith(_MARK)]
    row = {name: said[name] for name in names if name in said}
    if settings.pk_mode is not PkMode.NONE:
        row |= _key(settings, key, said)
    if not row:
        raise BadRecordError("the value has no field of a column")
    return Upsert(row) if settings.upsert else Insert(row)


def _key(settings: SinkSettings, key: bytes | None, said: Any) -> dict[str, Any]:  # noqa: ANN401
    if settings.pk_mode is PkMode.RECORD_KEY:
        return _key_of_record(settings, key)
    if not isinstance(said, dict):
        raise BadRecordError("there is no row in before that has the key")
    return _picked(settings, said, "value")


def _key_of_record(settings: SinkSettings, key: bytes | None) -> dict[str, Any]:
    if key is None:
        raise BadRecordError("the record has no key")
    if len(settings.keys) != 1:
        return _picked(settings, _payload(parse_json(key, "key")), "key")
    try:
        said = _payload(parse_json(key, "key"))
    except BadRecordError:  # a key of text, as the StringConverter writes it
        try:
            said = key.decode()
        except UnicodeDecodeError:
            raise BadRecordError("the key is no text") from None
    return _picked(settings, said if isinstance(said, dict) else {settings.keys[0]: said}, "key")


def _picked(settings: SinkSettings, said: Any, what: str) -> dict[str, Any]:  # noqa: ANN401
    if not isinstance(said, dict):
        raise BadRecordError(f"the {what} is no object with the fields of pk.fields")
    for name in settings.keys:
        if said.get(name) is None:
            raise BadRecordError(f"the {what} has no {name}, a column of the key")
    return {name: said[name] for name in settings.keys}
