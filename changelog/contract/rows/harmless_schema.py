"""Schemas under which no record can do harm: without recursion, without items of no size.

Where a schema contains itself, a few kilobytes nest deeper than a reader's stack; where an array's
items take no bytes, five bytes stand for millions of them. Capture writes neither, so that such
a schema under one of our subjects is somebody else's.
"""

from __future__ import annotations

import json
from typing import Any

from changelog.contract.base.errors import CorruptRecordError

_MOST_NESTED = 32
_SIZELESS = "null"


def check_tame(text: str, subject: str) -> None:
    """Refuse an Avro schema under which a short record could end its reader.

    `subject` names it for the message, such as `schema 7`.

    Raises CorruptRecordError: it is recursive, nests too deep, has items without a size, or is no
    schema.
    """
    try:
        _walk(json.loads(text), "", (), {}, 0)
    except _HarmfulError as error:
        raise CorruptRecordError(
            f"{subject} of the registry is refused: {error}",
            hint="capture does not write such schemas: find out who registered it",
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptRecordError(f"{subject} of the registry is not an Avro schema") from error


class _HarmfulError(Exception):
    """A schema is not harmless; says why."""


def _walk(
    raw: Any,  # noqa: ANN401 - JSON
    space: str,
    inside: tuple[str, ...],
    sizeless: dict[str, bool],
    depth: int,
) -> bool:
    """Tell whether a value of the schema can take no bytes at all."""
    if depth > _MOST_NESTED:
        raise _HarmfulError(f"it nests deeper than {_MOST_NESTED}")
    match raw:
        case str():
            name = full_name(raw, space)
            if name in inside:
                raise _HarmfulError(f'type "{raw}" contains itself')
            return sizeless.get(name, raw == _SIZELESS)
        case list():
            for branch in raw:
                _walk(branch, space, inside, sizeless, depth + 1)
            return False  # the number of the branch takes a byte
        case dict():
            return _walk_complex(raw, space, inside, sizeless, depth + 1)
        case _:
            raise TypeError("a schema is a name, a list or an object")


def _walk_complex(
    raw: dict[str, Any], space: str, inside: tuple[str, ...], sizeless: dict[str, bool], depth: int
) -> bool:
    kind = raw["type"]
    if not isinstance(kind, str):
        return _walk(kind, space, inside, sizeless, depth)
    if kind in {"array", "map"}:
        items = raw["items"] if kind == "array" else raw["values"]
        if _walk(items, space, inside, sizeless, depth) and kind == "array":
            raise _HarmfulError("an array's items have no size")
        return False
    if kind == "record":
        own = raw.get("namespace", space)
        name = full_name(raw["name"], own)
        sizes = [
            _walk(field["type"], own, (*inside, name), sizeless, depth) for field in raw["fields"]
        ]
        sizeless[name] = all(sizes)
        return sizeless[name]
    if kind in {"enum", "fixed"}:
        sizeless[full_name(raw["name"], raw.get("namespace", space))] = raw.get("size") == 0
        return raw.get("size") == 0
    return _walk(kind, space, inside, sizeless, depth)


def full_name(name: str, space: str) -> str:
    """Return an Avro name with its namespace."""
    return name if "." in name or not space else f"{space}.{name}"
