"""Whether the form that carries each captured type keeps its equality and its order. Pure.

Types without an Avro form of their own are carried as PostgreSQL's text, which compares as the type
does only for some of them: `'1 mon'` and `'30 days'` are one interval and two texts. The table has
every type that capture knows; other types keep neither.

| meaning | types |
|---|---|
| as carried | numbers, dates, timestamps, booleans, bytea, text and varchar under a collation that orders by code points, uuid, time, bit, varbit, macaddr |
| equality alone | enums, text under other collations that are deterministic, timetz, inet, cidr, `"char"`, pg_lsn, xid, tid, ranges of integers, dates and timestamps, tsvector, ltree, hstore, arrays whose elements have equality |
| without the blanks at the end | char(n) |
| neither | numeric beyond decimal(38), interval, money, citext, json, jsonb, xml, geometry, other ranges, composite types, unknown types, text under a collation that is not deterministic |
"""  # noqa: E501 - a table

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import partial
from ipaddress import ip_interface, ip_network

from changelog.contract.rows.types import ColumnType, Kind

_MODIFIER = re.compile(r"\(([\d, -]*)\)")
_ALIASES = {
    "varchar": "character varying",
    "char": "character",
    "timetz": "time with time zone",
    "time": "time without time zone",
    "varbit": "bit varying",
    "decimal": "numeric",
}
"""Other names of types, to the names in the tables below."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """The comparisons of a type in PostgreSQL that its carried form keeps."""

    base: str  # name of the type, without its modifier
    equal: bool = False  # whether equal values, and they alone, have equal forms
    ordered: bool = False  # whether the forms sort as the values do
    # whether functions of texts accept it, with the same result as for its text
    functions: bool = False
    length: int | None = None  # of a char(n); 0 for one that is not padded, None for other types
    advice: str = ""  # what to write where a comparison would differ
    is_list: bool = False  # whether it is an array
    # of an array, the meaning of its elements; None if they compare as their carried form
    element: Meaning | None = None
    is_composite: bool = False  # whether it is a composite type

    @property
    def is_plain_list(self) -> bool:
        """Tell whether it is an array whose elements compare as their carried form."""
        return self.is_list and (self.element is None or self.element.is_plain_list)

    @property
    def is_char(self) -> bool:
        """Tell whether comparisons ignore trailing blanks."""
        return self.length is not None


_BOTH = frozenset({"time without time zone", "bit", "bit varying", "macaddr", "macaddr8", "uuid"})
"""Types whose text has their equality and their order."""
_EQUAL = frozenset(
    {
        *("time with time zone", "inet", "cidr", '"char"', "pg_lsn", "xid", "xid8", "cid", "tid"),
        *("int4range", "int8range", "daterange", "tsrange", "tstzrange", "int4multirange"),
        *("int8multirange", "datemultirange", "tsmultirange", "tstzmultirange"),
        *("tsvector", "ltree", "hstore", "int2vector", "oidvector"),
    }
)
"""Types whose text has only their equality."""
_OF_TEXT = frozenset({"text", "character varying", "name", "string"})
_DOCUMENTS = frozenset({"json", "jsonb", "xml"})
_RANGES = frozenset(name for name in _EQUAL if name.endswith("range"))
_OWN_FUNCTIONS = _RANGES | {"tsvector", "ltree", "hstore"}
"""Types with functions of their own in PostgreSQL that have names of functions of texts."""
_NUMERIC = (
    "cast({} AS decimal(38, 10)) with the digits that its values need, 38 at most, or "
    "cast({} AS double) for the first 15 of them"
)
_MOST_DIGITS = 38
_SIZE = re.compile(r"numeric\((\d+),(-?\d+)\)")
_ADVICE = {
    "numeric": _NUMERIC,
    "inet": "concat({}), which compares its text",
    "money": "a numeric(19,2) column in the table",
    "citext": "lower(cast({} AS string)), and the constant in lower case",
    "interval": "a column in the table that holds it as a number of seconds",
    "jsonb": "get_json_object({}, '$.…'), or cast({} AS string) for its text",
    "json": "get_json_object({}, '$.…'), or cast({} AS string) for its text",
}
"""What to write instead of a comparison of a type; `{}` is the column."""
IN_THE_TABLE = "it as a column of the table in PostgreSQL"
_BYTES_ADVICE = "X'00ff' for a constant"
_TEXT_ADVICE = "cast({} AS string), which compares its text"


def base_of(name: str) -> str:
    """Return the name of a type without its modifier."""
    text = " ".join(_MODIFIER.sub("", name).split())
    text = text.partition(" ")[0] if text.startswith("interval ") else text
    return _ALIASES.get(text, text)


def meaning_of(kind: ColumnType) -> Meaning | None:  # noqa: PLR0911 - one for each sort
    """Return the meaning of a type's comparisons, or None if its carried form compares the same."""
    base = base_of(kind.name)
    if kind.kind is Kind.ARRAY:
        return _of_array(base, kind)
    if kind.kind is Kind.UUID:
        return Meaning("uuid", equal=True, ordered=True, functions=True, advice=_TEXT_ADVICE)
    if kind.kind is Kind.BYTES:
        return Meaning("bytea", equal=True, ordered=True, functions=True, advice=_BYTES_ADVICE)
    if kind.kind is not Kind.STRING:
        return None
    advice = _of_numeric(kind.name) or _ADVICE.get(base, _TEXT_ADVICE)
    if base in {"character", "bpchar"}:
        size = _MODIFIER.search(kind.name)
        length = int(size[1]) if size else int(base == "character")
        plain = not kind.collation
        exact = kind.deterministic
        return Meaning(base, exact, plain and exact, functions=True, length=length, advice=advice)
    if base in _OF_TEXT:
        if not kind.collation:
            return None
        return Meaning(base, equal=kind.deterministic, functions=True, advice=advice)
    if kind.sort == "enum":
        return Meaning(base, equal=True, functions=True, advice=advice)
    if kind.sort:
        return Meaning(base, advice=advice, is_composite=kind.sort == "composite")
    both = base in _BOTH
    return Meaning(
        base,
        equal=both or base in _EQUAL,
        ordered=both,
        functions=base in _DOCUMENTS or ((both or base in _EQUAL) and base not in _OWN_FUNCTIONS),
        advice=advice,
    )


def _of_numeric(name: str) -> str:
    """Return the cast for a numeric whose digits are declared; empty for another type."""
    size = _SIZE.fullmatch(name)
    if size is None:
        return ""
    precision, scale = int(size[1]), int(size[2])
    if scale > _MOST_DIGITS:
        return (
            f"cast({{}} AS double) for its first 15 digits: decimals of the engines have at most "
            f"{_MOST_DIGITS} digits after the point, not {scale}"
        )
    integer_digits = max(precision - scale, 0)
    fraction_digits = max(scale, 0)
    if integer_digits + fraction_digits <= _MOST_DIGITS:
        return f"cast({{}} AS decimal({integer_digits + fraction_digits}, {fraction_digits}))"
    return (
        f"cast({{}} AS decimal({_MOST_DIGITS}, {fraction_digits})), which fails at values of more "
        f"than {_MOST_DIGITS - fraction_digits} digits before the point, or cast({{}} AS double) "
        "for the first 15 digits"
    )


def _of_array(base: str, kind: ColumnType) -> Meaning:
    element = kind.element
    assert element is not None  # noqa: S101 - an array has one
    inner = meaning_of(element)
    floats = element.kind in {Kind.FLOAT, Kind.DOUBLE}
    equal = not floats and (inner is None or inner.equal)
    return Meaning(
        base,
        equal=equal,
        functions=True,
        advice="its elements one by one",
        is_list=True,
        element=inner,
    )


def list_of(meaning: Meaning) -> Meaning:
    """Return the meaning of a list of values of a type, as `collect_list` returns it."""
    return replace(meaning, ordered=False, is_list=True, element=meaning)


_JOINED = frozenset(
    {
        *("jsonb", "bit", "bit varying", "bytea", "inet", "cidr", "tsvector", "tsquery", "hstore"),
        *("ltree", "int2vector", "oidvector"),
    }
)
"""Types with a `||` of their own in PostgreSQL."""


def is_joined(meaning: Meaning) -> bool:
    """Tell whether `||` joins two values of the type, and not their texts."""
    return meaning.base in _JOINED or meaning.is_list


def is_text(meaning: Meaning) -> bool:
    """Tell whether it is a text under some collation."""
    return meaning.base in _OF_TEXT


def carried_form(meaning: Meaning, text: str) -> str | None:
    """Return a constant in the carried form of a type, or None if that is not known."""
    if is_text(meaning) or meaning.is_char:
        return text
    if meaning.base == "bytea" or meaning.is_list:
        return None  # in Spark their constants are no texts
    form = _FORMS.get(meaning.base)
    if form is None:
        return text if meaning.equal and meaning.base not in _BOTH | _EQUAL else None
    if isinstance(form, str):
        return text if re.fullmatch(form, text) else None
    try:
        return form(text)
    except (ValueError, OverflowError):
        return None


def constant_advice(meaning: Meaning) -> str:
    """Return the advice for a constant whose carried form is not known.

    A cast to text is not advised: a constant in another form would be unequal as a text.
    """
    if (example := _EXAMPLES.get(meaning.base)) is not None:
        return f"the constant as {example}"
    return IN_THE_TABLE if is_advised_as_text(meaning) else ""


def is_advised_as_text(meaning: Meaning) -> bool:
    """Tell whether the advice for a type that is no text is a comparison of its text."""
    return not is_text(meaning) and meaning.advice in {_TEXT_ADVICE, _ADVICE["inet"]}


def _inet(text: str) -> str:
    interface = ip_interface(text)
    full = interface.network.prefixlen == interface.max_prefixlen
    if interface.version == 6 and "." in text:  # noqa: PLR2004 - of the protocol
        raise ValueError(text)
    return str(interface.ip) if full else str(interface)


_TIME = re.compile(r"(\d\d?):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?([+-]\d\d(?::\d\d)?)?")
_LAST_HOUR, _SIXTY = 24, 60
_WIDEST_ZONE = 15
_RANGE = re.compile(r"([\[(])([\d-]*),([\d-]*)([\])])")


def _time(text: str, *, zoned: bool = False) -> str:
    parts = _TIME.fullmatch(text)
    if parts is None or zoned is not bool(parts[5]):
        raise ValueError(text)
    hour, minute, second = (int(part or 0) for part in parts.group(1, 2, 3))
    fraction = (parts[4] or "").rstrip("0")
    last = hour == _LAST_HOUR and (minute or second or fraction)
    if hour > _LAST_HOUR or minute >= _SIXTY or second >= _SIXTY or last:
        raise ValueError(text)
    zone = (parts[5] or "").removesuffix(":00")
    if zone and (int(zone[1:3]) > _WIDEST_ZONE or int(zone[4:] or 0) >= _SIXTY):
        raise ValueError(text)
    zone = "+00" if zone == "-00" else zone
    return f"{hour:02}:{minute:02}:{second:02}{fraction and '.' + fraction}{zone}"


def _range(text: str, step: Callable[[str, int], int | date]) -> str:
    """Return a range of discrete values in PostgreSQL's canonical form, `[lower,upper)`."""
    if text == "empty":
        return text
    parts = _RANGE.fullmatch(text)
    if parts is None:
        raise ValueError(text)
    lower = step(parts[2], int(parts[1] == "(")) if parts[2] else None
    upper = step(parts[3], int(parts[4] == "]")) if parts[3] else None
    if lower is not None and upper is not None and not lower < upper:  # type: ignore[operator]
        raise ValueError(text)  # empty, or invalid
    start = "(" if lower is None else f"[{lower}"
    return f"{start},{'' if upper is None else upper})"


def _later_day(text: str, days: int) -> date:
    return date.fromisoformat(text) + timedelta(days)


def _next_number(text: str, count: int, bits: int) -> int:
    number = int(text) + count
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(text)
    return number


def _lsn(text: str) -> str:
    if re.fullmatch(r"[0-9a-fA-F]{1,8}/[0-9a-fA-F]{1,8}", text) is None:
        raise ValueError(text)
    return "/".join(f"{int(part, 16):X}" for part in text.split("/"))


_FORMS: dict[str, str | Callable[[str], str]] = {
    "uuid": lambda text: str(uuid.UUID(text)),
    "inet": _inet,
    "cidr": lambda text: str(ip_network(text)),
    "time without time zone": _time,
    "time with time zone": partial(_time, zoned=True),
    "bit": "[01]*",
    "bit varying": "[01]*",
    "macaddr": "([0-9a-f]{2}:){5}[0-9a-f]{2}",
    "macaddr8": "([0-9a-f]{2}:){7}[0-9a-f]{2}",
    "pg_lsn": _lsn,
    "int4range": partial(_range, step=partial(_next_number, bits=32)),
    "int8range": partial(_range, step=partial(_next_number, bits=64)),
    "daterange": partial(_range, step=_later_day),
    **dict.fromkeys(("xid", "xid8", "cid"), r"0|[1-9]\d*"),
    '"char"': "[!-~]?",
}
"""By type, a pattern of constants in carried form, or the function that converts a constant."""
_EXAMPLES = {
    "uuid": "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
    "inet": "'10.0.0.1'",
    "cidr": "'10.0.0.0/8'",
    "time without time zone": "'12:00:00'",
    "time with time zone": "'12:00:00+00'",
    **dict.fromkeys(("bit", "bit varying"), "'0101'"),
    "macaddr": "'08:00:2b:01:02:03'",
    "macaddr8": "'08:00:2b:01:02:03:04:05'",
    "pg_lsn": "'16/B374D848'",
    **dict.fromkeys(("xid", "xid8", "cid"), "'42'"),
    '"char"': "'a'",
    **dict.fromkeys(("int4range", "int8range"), "'[1,5)'"),
    "daterange": "'[2024-01-01,2024-02-01)'",
}
"""A constant of each type in `_FORMS`, for advice."""
