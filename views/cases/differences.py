"""Rows of a view against the rows that a case expects (pure)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from views.verify.compare.compare import RELATIVE_TOLERANCE

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseDifference:
    """One thing that is not as expected."""

    # `missing`, `unexpected`, `different`; or `twice`, a key that two rows have, or `null`, a key
    # with a null in it
    kind: str
    row: Row  # the row's key; of a row without a partner, the row
    column: str = ""  # the column that differs, else empty
    expected: Any = None  # its expected value
    found: Any = None  # its value

    def to_json(self) -> dict[str, object]:
        """Return it as plain values; a value without a JSON form as text."""
        return {
            "kind": self.kind,
            "row": {name: plain(value) for name, value in self.row.items()},
            "column": self.column or None,
            "expected": plain(self.expected),
            "found": plain(self.found),
        }


def differences(
    actual: Sequence[Row], expected: Sequence[Row], key: Sequence[str], *, whole: bool
) -> list[CaseDifference]:
    """Compare rows, whatever their order.

    Rows are partners when they have the same key, or, of a part of the rows, when they agree in
    all columns that are given.

    `whole`: whether these are all rows with all columns; else some rows with some columns.
    """
    differing = _keyed(actual, key)
    unmatched = list(actual)
    for row in expected:
        named = [name for name in key if name in row]
        partners = [r for r in unmatched if named and all(same(r[n], row[n]) for n in named)]
        agreeing = [r for r in partners or unmatched if all(same(r[n], row[n]) for n in row)]
        if agreeing:
            unmatched.remove(agreeing[0])
        elif len(partners) == 1 and len(named) == len(key):
            unmatched.remove(partners[0])
            differing += _different(partners[0], row, named)
        else:
            differing.append(CaseDifference(kind="missing", row=row))
    if whole:
        differing += [CaseDifference(kind="unexpected", row=row) for row in unmatched]
    return differing


def _keyed(actual: Sequence[Row], key: Sequence[str]) -> list[CaseDifference]:
    """Find rows without a key of their own, which no sink would take."""
    faults, seen = [], set()
    for row in actual:
        own = {name: row[name] for name in key}
        if any(value is None for value in own.values()):
            faults.append(CaseDifference(kind="null", row=own))
        elif repr(own) in seen:
            faults.append(CaseDifference(kind="twice", row=own))
        seen.add(repr(own))
    return faults


def _different(actual: Row, expected: Row, key: Sequence[str]) -> list[CaseDifference]:
    one = CaseDifference(kind="different", row={name: expected[name] for name in key})
    return [
        replace(one, column=name, expected=value, found=actual[name])
        for name, value in expected.items()
        if not same(actual[name], value)
    ]


def same(one: object, two: object) -> bool:
    """Tell whether two values are equal: floats within the verifier's tolerance, all NaNs one."""
    match one, two:
        case float(), float():
            both_nan = math.isnan(one) and math.isnan(two)
            return both_nan or math.isclose(one, two, rel_tol=RELATIVE_TOLERANCE)
        case dict(), dict():
            return one.keys() == two.keys() and all(same(one[name], two[name]) for name in one)
        case list(), list():
            return len(one) == len(two) and all(map(same, one, two))
        case _:
            return type(one) is type(two) and one == two


def plain(value: object) -> object:
    """Return a value as JSON has it; what JSON lacks as its text."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case dict():
            return {str(name): plain(item) for name, item in value.items()}
        case list():
            return [plain(item) for item in value]
        case bytes():
            return "\\x" + value.hex()
        case _:
            return str(value)
