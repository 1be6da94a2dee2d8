"""Defects of a copy, one of each sort, and what a comparison has to find of them."""

from __future__ import annotations

from copy import deepcopy
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from tests.support.copies import Values, every_row

MICROSECOND = timedelta(microseconds=1)
NEW_YEAR = datetime(1969, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001
LEAP = datetime(2024, 2, 29, 12, 0, 0, 100000)  # noqa: DTZ001
JSON = '{"a": 1, "bb": [1.50, null, "é"]}'


class Defects:
    """Rows with planted defects, each in a row of its own, and what has to be found of them."""

    def __init__(self) -> None:
        self.rows: list[Values] = every_row()
        self.expected: dict[int, tuple[str, set[str]]] = {}
        self._used: set[int] = set()

    def _row(self, column: str = "id", old: Any = None) -> Values:
        """Return an unused row, whose column has a value written so."""
        for row in self.rows:
            if row["id"] not in self._used and (old is None or repr(row[column]) == repr(old)):
                self._used.add(row["id"])
                return row
        raise AssertionError(f"no unused row has {column}={old!r}")

    def change(self, column: str, old: Any, new: Any) -> None:
        row = self._row(column, old)
        row[column] = new
        self.expected[row["id"]] = ("differs", {column})

    def lose(self) -> None:
        row = self._row()
        self.rows.remove(row)
        self.expected[row["id"]] = ("missing", set())

    def resurrect(self) -> None:
        self.rows.append({**self._row(), "id": 999_983})
        self.expected[999_983] = ("unexpected", set())

    def duplicate(self) -> None:
        row = self._row()
        self.rows.append(deepcopy(row))
        self.expected[row["id"]] = ("duplicated", set())

    def swap(self) -> None:
        row = self._row("t", " a ")
        row["t"], row["v"] = row["v"], row["t"]
        self.expected[row["id"]] = ("differs", {"t", "v"})

    def make_stale(self) -> None:
        row = self._row("b", False)
        row.update(t="old", n=Decimal(7), b=None)
        self.expected[row["id"]] = ("differs", {"t", "n", "b"})


def planted_defects(*, has_duplicate: bool = True) -> Defects:
    """Return rows with each defect in a row of its own."""
    planted = Defects()
    planted.lose()
    planted.resurrect()
    if has_duplicate:
        planted.duplicate()
    planted.swap()
    planted.make_stale()
    planted.change("n", Decimal("1234567890123456.7890"), Decimal("1234567890123456.7891"))
    planted.change(
        "big",
        "-12345678901234567890123456789012345678.5",
        "-12345678901234567890123456789012345678.6",
    )
    planted.change("big", "NaN", None)
    planted.change("ts", NEW_YEAR, NEW_YEAR - MICROSECOND)
    planted.change("tz", LEAP.replace(tzinfo=UTC), LEAP.replace(tzinfo=UTC) + MICROSECOND)
    planted.change("ti", time(1, 2, 3, 40), time(1, 2, 3, 41))
    planted.change("d", LEAP.date(), NEW_YEAR.date())
    planted.change("t", "plain", "plain ")
    planted.change("t", "é", "e\u0301")
    planted.change("t", "", None)
    planted.change("t", None, "")
    planted.change("v", "NULL", None)
    planted.change("c", "1", "2")
    planted.change("f", 0.0, -0.0)
    planted.change("f", None, float("nan"))
    planted.change("f", float("nan"), None)
    planted.change("f", 0.1, 0.10000000000000002)
    planted.change("r", -0.0, 0.0)
    planted.change("b", True, None)
    planted.change("y", b"\x00\xff\\x", b"\x00\xfe\\x")
    planted.change("y", b"", None)
    planted.change("u", None, UUID(int=7))
    planted.change("ia", [1, None, -3], [1, 0, -3])
    planted.change("ia", [], None)
    planted.change("ta", ["{}"], ["{}", None])
    planted.change("j", JSON, JSON.replace("1.50", "1.51"))
    planted.change("j", "null", None)
    return planted
