"""Values that people write in a case, to the values that the log would carry (pure).

They take the way that capture takes: PostgreSQL's text, the Avro bytes of the contract, and back.
What has no exact place in its column is refused, as PostgreSQL or a reader would refuse it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from functools import cache
from io import BytesIO
from typing import Any, cast
from uuid import UUID

import fastavro

from changelog.contract.base.errors import EncodeError, ViewError
from changelog.contract.forms.declared import SPARK_TYPES
from changelog.contract.rows.schema import branches
from changelog.contract.rows.text import encoder
from changelog.contract.rows.types import ColumnType, Kind, array_type, column_type
from views.verify.values.types import Type

_NAMED = re.compile(
    r"(?P<base>[a-z_][a-z0-9_ ]*?) ?(?:\((?P<size>[0-9, ]+)\))? ?(?P<zone>with(?:out)? time zone)?"
)
_INTERNAL = {
    "smallint": "int2",
    "integer": "int4",
    "int": "int4",
    "bigint": "int8",
    "real": "float4",
    "double precision": "float8",
    "boolean": "bool",
    "decimal": "numeric",
    "character varying": "varchar",
    "character": "bpchar",
    "bit varying": "varbit",
    "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamptz",
    "time without time zone": "time",
    "time with time zone": "timetz",
}
_BITS = {"smallint": 15, "int2": 15, "integer": 31, "int": 31, "int4": 31}
_BOOLEANS = {"t": b"t", "true": b"t", "f": b"f", "false": b"f"}
_TOO_FINE = re.compile(r"\.\d{7}")
_SPARK = {**SPARK_TYPES, "tinyint": Kind.INT, "smallint": Kind.INT}
"""The kinds of a view's columns: a view may compute small integers, which no log has."""


class CaseNumber(str):
    """A number with a point or an exponent, by the characters in which it is written."""

    __slots__ = ()


def type_named(name: str) -> ColumnType:
    """Read a type of PostgreSQL: `numeric(10,2)`, `timestamptz`, `text[]` and so on."""
    text = " ".join(name.lower().split())
    if text.endswith("[]"):
        return array_type(type_named(text[:-2]), text)
    match = _NAMED.fullmatch(text)
    base = "" if match is None else " ".join(filter(None, (match["base"], match["zone"])))
    base = _INTERNAL.get(base, base)
    formatted = text
    if match is not None and base == "numeric" and match["size"]:
        precision, _, scale = match["size"].replace(" ", "").partition(",")
        formatted = f"numeric({precision},{scale or 0})"
    parsed = column_type(base, formatted)
    if not parsed.mapped:
        raise ViewError(
            f"{name!r} is no type that a case can give a column",
            hint="use a type of PostgreSQL, such as bigint, numeric(10,2), text, timestamptz, "
            "text[]; an enum or a composite type is text",
        )
    return parsed


def value_of(kind: ColumnType, case_value: object) -> Any:  # noqa: ANN401 - of any type
    """Return a column's value, as Arrow takes it, of what a case gives for it.

    Raises ViewError: it is no value of this type, or the log has no exact form of it.
    """
    try:
        raw = encoder(kind, nullable=True)(_text(kind, case_value))
        # With logical types, other than all readers of the log: what they have no value of, a year
        # after 9999 or a text that is no UUID, a person did not mean.
        decoded = fastavro.schemaless_reader(BytesIO(raw), _schema(kind), None)
    except (ValueError, KeyError, OverflowError, IndexError, EncodeError) as error:
        raise _refused(kind, case_value, str(error)) from error
    if kind.has_escape and isinstance(decoded, str):
        raise _refused(kind, case_value, "it has no exact form in its type")
    bits = _BITS.get(kind.name)
    if bits is not None and not -(1 << bits) <= cast("int", decoded) < 1 << bits:
        raise _refused(kind, case_value, "it is out of range")
    return _plain(decoded)


def expected_of(kind: Type, case_value: object) -> Any:  # noqa: ANN401 - of any type
    """Return a value that a view's column must have, as Arrow takes it."""
    match kind.name:
        case "struct":
            fields = dict(kind.fields)
            own = _table(kind, case_value)
            if unknown := [name for name in own if name not in fields]:
                raise ViewError(
                    f"a struct has no field {', '.join(unknown)}",
                    hint=f"it has {', '.join(fields)}",
                )
            return {n: expected_of(k, own[n]) if n in own else None for n, k in fields.items()}
        case "map":
            (_, one), (_, two) = kind.fields
            pairs = _table(kind, case_value).items()
            return [(expected_of(one, key), expected_of(two, value)) for key, value in pairs]
        case "array":
            if not isinstance(case_value, list):
                raise ViewError(f"{_shown(case_value)} is no list")
            return [expected_of(kind.fields[0][1], item) for item in case_value]
        case "decimal":
            name = f"decimal({kind.precision},{kind.scale})"
            return value_of(ColumnType(name, Kind.DECIMAL, kind.precision, kind.scale), case_value)
        case _:
            return value_of(ColumnType(kind.name, _SPARK[kind.name]), case_value)


def _table(kind: Type, case_value: object) -> Mapping[str, object]:
    if not isinstance(case_value, Mapping):
        raise ViewError(
            f"{_shown(case_value)} is no {kind.name}", hint="write it as { name = value }"
        )
    return case_value


@cache
def _schema(kind: ColumnType) -> Any:  # noqa: ANN401 - an Avro schema is JSON
    return fastavro.parse_schema(branches(kind, nullable=True))


def _plain(decoded: object) -> object:
    match decoded:
        case UUID():
            return str(decoded)
        case datetime():
            return decoded.replace(tzinfo=None)
        case list():
            return [_plain(item) for item in decoded]
        case _:
            return decoded


def _shown(case_value: object) -> str:
    return str(case_value) if isinstance(case_value, CaseNumber | date | time) else repr(case_value)


def _refused(kind: ColumnType, case_value: object, why: str) -> ViewError:
    return ViewError(f"{_shown(case_value)} is no {kind.name}: {why}")


def _text(kind: ColumnType, case_value: object) -> bytes:  # noqa: C901, PLR0911, PLR0912 - one a kind
    """Return a value in PostgreSQL's text form."""
    is_number = isinstance(case_value, CaseNumber | int) and not isinstance(case_value, bool)
    is_text = isinstance(case_value, str) and not isinstance(case_value, CaseNumber)
    text = str(case_value)
    match kind.kind:
        case Kind.BOOLEAN if isinstance(case_value, bool) or (is_text and text in _BOOLEANS):
            return _BOOLEANS[text.lower()]
        case Kind.INT | Kind.LONG if (
            is_number and not isinstance(case_value, CaseNumber)
        ) or is_text:
            if not -(1 << 63) <= int(text) < 1 << 63:
                raise ValueError("it is out of range")
            return text.encode()
        case Kind.FLOAT | Kind.DOUBLE | Kind.DECIMAL if is_number or is_text:
            return text.encode()
        case Kind.DATE if is_text or (
            isinstance(case_value, date) and not isinstance(case_value, datetime)
        ):
            return date.fromisoformat(text).isoformat().encode()
        case Kind.TIMESTAMP | Kind.TIMESTAMPTZ if is_text or isinstance(case_value, datetime):
            return _moment(text, zoned=kind.kind is Kind.TIMESTAMPTZ)
        case Kind.UUID if is_text:
            return str(UUID(text)).encode()
        case Kind.BYTES if is_text:
            if not text.startswith("\\x"):
                raise ValueError(r"bytes are written as '\x00ff'")
            return b"\\x" + bytes.fromhex(text[2:]).hex().encode()
        case Kind.STRING if is_text:
            if kind.name in {"json", "jsonb"}:
                json.loads(text)
            return _fitting(kind.name, text).encode()
        case Kind.STRING if is_number and kind.name.startswith("numeric"):
            return text.encode()
        case Kind.STRING if isinstance(case_value, time) and kind.name.startswith("time"):
            return text.encode()
        case Kind.ARRAY if isinstance(case_value, list):
            assert kind.element is not None  # noqa: S101 - an array has an element
            items = [_text(kind.element, item).decode() for item in case_value]
            escaped = [item.replace("\\", "\\\\").replace('"', '\\"') for item in items]
            return ("{" + ",".join(f'"{item}"' for item in escaped) + "}").encode()
        case Kind.ARRAY if is_text:
            if not (text.startswith("{") and text.endswith("}")):
                raise ValueError("an array is written as [1, 2], or as PostgreSQL's '{1,NULL}'")
            return text.encode()
        case _:
            raise ValueError("a value of another type; texts stand in quotes")


def _moment(text: str, *, zoned: bool) -> bytes:
    moment = datetime.fromisoformat(text)
    if _TOO_FINE.search(text):
        raise ValueError("it has more than microseconds")
    if zoned != (moment.tzinfo is not None):
        raise ValueError("give its zone, such as Z or +00" if zoned else "this type has no zone")
    if not zoned:
        return moment.isoformat(" ").encode()
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ").encode() + b"+00"


def _fitting(name: str, text: str) -> str:
    """Return a text as a column of limited length holds it."""
    match = re.fullmatch(r"(varchar|character varying|char|character|bpchar) ?\((\d+)\)", name)
    if match is None:
        return text
    most = int(match[2])
    if len(text) > most:
        raise ValueError("it is too long")
    return text if "var" in match[1] else text.ljust(most)
