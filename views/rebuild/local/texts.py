"""Functions of texts for DataFusion, with Java's results; where engines may differ, an error."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from views.rebuild.plan.dialect import UnknownValueError

_NUMBER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_OTHERWISE = frozenset("İıΣσς")
"""Letters whose small or capital form depends on what stands around them."""


def _each(function: Callable[..., Any], kind: pa.DataType, *columns: pa.Array) -> pa.Array:
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return pa.array([None if None in row else function(*row) for row in rows], kind)


def _in_letters(
    ascii_form: Callable[[pa.Array], pa.Array], form: Callable[[str], str], texts: pa.Array
) -> pa.Array:
    if pc.all(pc.string_is_ascii(texts), min_count=0).as_py():
        return ascii_form(texts)

    def changed(text: str) -> str:
        letters = form(text)
        if len(letters) != len(text) or not _OTHERWISE.isdisjoint(text):
            raise UnknownValueError("a letter has another form in each engine")
        return letters

    return _each(changed, pa.string(), texts)


def in_capitals(texts: pa.Array) -> pa.Array:
    """Return texts in capital letters; raises UnknownValueError for letters with several forms."""
    return _in_letters(pc.ascii_upper, str.upper, texts)


def in_small_letters(texts: pa.Array) -> pa.Array:
    """Return texts in small letters; see `in_capitals`."""
    return _in_letters(pc.ascii_lower, str.lower, texts)


def _translated(text: str, letters: str, others: str) -> str:
    table: dict[int, str | None] = {}
    for place, letter in enumerate(letters):
        table.setdefault(ord(letter), others[place] if place < len(others) else None)
    return text.translate(table)


def _filled(text: str, length: int, fill: str) -> str:
    """Return the letters that fill a text up to its length."""
    missing = length - len(text)
    return (fill * missing)[:missing] if missing > 0 else ""


def _padded_left(text: str, length: int, fill: str) -> str:
    return (_filled(text, length, fill) + text)[:length]


def _padded_right(text: str, length: int, fill: str) -> str:
    return (text + _filled(text, length, fill))[:length]


def _whole_number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise UnknownValueError("a text is no plain whole number")
    return int(text)


class _Fraction(str):
    """A number with a fraction, whose text the engines write otherwise."""

    __slots__ = ()


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise UnknownValueError("an object of JSON has a name twice")
    return names


def _json_text(text: str, path: str) -> str | None:
    """Return the text at a path into JSON; null where there is none.

    Raises UnknownValueError: the text is no JSON, or what is there has no one form.
    """
    try:
        value = json.loads(text, parse_float=_Fraction, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise UnknownValueError("a text is no JSON") from error
    for step in json.loads(path):
        if isinstance(value, list) != isinstance(step, int) and isinstance(value, list | dict):
            raise UnknownValueError("a path into JSON meets a value of another kind")
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list):
            value = value[step] if step < len(value) else None
        elif isinstance(step, int):
            raise UnknownValueError("a path into JSON meets a value of another kind")
        else:
            return None
    match value:
        case None | bool():
            return None if value is None else str(value).lower()
        case _Fraction() | list() | dict():
            raise UnknownValueError("a value of JSON is no text, whole number, true or false")
        case _:
            return str(value)


def _list_has(values: list[str | None], value: str) -> bool | None:
    """Return whether a list has a value; null where one of its nulls may be it."""
    if value in values:
        return True
    return None if None in values else False


def _has_all(values: list[str | None], others: list[str | None]) -> bool:
    """Return whether a list has each value of a second list; a null equals nothing."""
    return None not in others and set(others) <= set(values)


def _overlap(values: list[str | None], others: list[str | None]) -> bool | None:
    """Return whether two lists share a value; null where a null may be it."""
    if (set(values) & set(others)) - {None}:
        return True
    return None if values and others and (None in values or None in others) else False


def _label_place(label: str, labels: str) -> int:
    """Return the place of an enum's label in its order."""
    try:
        return int(json.loads(labels).index(label)) + 1
    except ValueError as error:
        raise UnknownValueError("an enum has a label that its type has not") from error


_TEXT = pa.string()
_TEXTS = pa.list_(pa.string())
FUNCTIONS: Mapping[str, tuple[Callable[..., pa.Array], list[pa.DataType], pa.DataType]] = {
    "in_capitals": (in_capitals, [_TEXT], _TEXT),
    "in_small_letters": (in_small_letters, [_TEXT], _TEXT),
    **{
        name: (lambda *columns, f=function, k=kind: _each(f, k, *columns), kinds, kind)
        for name, function, kinds, kind in (
            ("translated", _translated, [_TEXT] * 3, _TEXT),
            ("padded_left", _padded_left, [_TEXT, pa.int64(), _TEXT], _TEXT),
            ("padded_right", _padded_right, [_TEXT, pa.int64(), _TEXT], _TEXT),
            ("whole_number", _whole_number, [_TEXT], pa.int64()),
            ("list_has", _list_has, [_TEXTS, _TEXT], pa.bool_()),
            ("has_all", _has_all, [_TEXTS] * 2, pa.bool_()),
            ("arrays_overlap", _overlap, [_TEXTS] * 2, pa.bool_()),
            ("label_place", _label_place, [_TEXT] * 2, pa.int64()),
            ("json_text", _json_text, [_TEXT, _TEXT], _TEXT),
        )
    },
}
"""By name: the function, the types of its arguments, and the type of its result."""
