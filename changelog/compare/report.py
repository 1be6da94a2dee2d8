"""The report of a comparison: for people, and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from changelog.compare.plan import Plan
from changelog.compare.side import Row
from changelog.compare.texts import shown
from changelog.compare.watch import Differing, normal_row

_LONGEST = 200


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """A column whose values differ."""

    column: str
    source: str | None
    target: str | None


@dataclass(frozen=True, slots=True)
class Difference:
    """A key whose rows differ."""

    key: Mapping[str, str | None]
    kind: str  # missing, unexpected, differs or duplicated: of the target
    columns: tuple[ColumnValues, ...] = ()
    source_rows: int = 1
    target_rows: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a comparison."""

    source: str
    target: str
    source_rows: int
    target_rows: int
    mismatches: int
    is_at_least: bool  # whether more buckets differ, which were not looked into
    differences: tuple[Difference, ...]
    open: tuple[Mapping[str, str | None], ...]
    compared: tuple[str, ...]
    not_compared: Mapping[str, str]
    notes: tuple[str, ...]
    settle_s: float
    sample: float  # the part of the keys; 1 for all
    looks: int
    seconds: float

    @property
    def verified(self) -> bool | None:
        """Return whether the two are equal, or None if nothing can be said."""
        if self.mismatches:
            return False
        return None if self.open or self.is_empty_sample else True

    @property
    def is_empty_sample(self) -> bool:
        """Tell whether the sample took no row of either side, which proves nothing."""
        return self.sample < 1 and not self.source_rows and not self.target_rows

    def to_json(self) -> dict[str, Any]:
        """Return a value for JSON."""
        return {
            "verified": self.verified,
            "source": self.source,
            "target": self.target,
            "rows_source": self.source_rows,
            "rows_target": self.target_rows,
            "mismatches": self.mismatches,
            "at_least": self.is_at_least,
            "differences": [_difference_json(difference) for difference in self.differences],
            "open": [dict(key) for key in self.open],
            "compared": list(self.compared),
            "not_compared": dict(self.not_compared),
            "notes": list(self.notes),
            "settle_seconds": self.settle_s,
            "sample": self.sample,
            "looks": self.looks,
            "seconds": round(self.seconds, 3),
        }

    def lines(self) -> list[str]:
        """Return the report for people, line by line."""
        word = {True: "equal", False: "differs", None: "open"}[self.verified]
        part = "" if self.sample == 1 else f" in a sample of {self.sample:.4%}"
        lines = [
            f"{word}: {self.target}",
            f"  source  {self.source_rows:,} rows{part}: {self.source}",
            f"  target  {self.target_rows:,} rows{part}",
            f"  columns {', '.join(self.compared)}",
        ]
        lines += [
            f"  not compared: {name} ({reason})" for name, reason in self.not_compared.items()
        ]
        lines += [f"  note: {note}" for note in self.notes]
        if self.is_empty_sample:
            lines.append("  the sample took no row, so nothing is said")
        if self.mismatches:
            least = "at least " if self.is_at_least else ""
            lines.append(
                f"  {least}{self.mismatches:,} keys differ, unchanged on both sides for "
                f"{self.settle_s:g} s"
            )
        for difference in self.differences:
            lines += _difference_lines(difference)
        hidden = self.mismatches - len(self.differences)
        if hidden > 0:
            lines.append(f"  and {hidden:,} more")
        if self.open:
            some = "; ".join(_key_text(key) for key in self.open[:3])
            lines.append(f"  nothing is said of {len(self.open):,} keys that kept changing: {some}")
        lines.append(f"  {self.seconds:.1f} s, {self.looks} looks at keys that differed")
        return lines


def _difference_json(difference: Difference) -> dict[str, Any]:
    return {
        "key": dict(difference.key),
        "kind": difference.kind,
        "rows_source": difference.source_rows,
        "rows_target": difference.target_rows,
        "columns": {
            values.column: {"source": values.source, "target": values.target}
            for values in difference.columns
        },
    }


def _key_text(key: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name}={_value_text(text)}" for name, text in key.items())


def _value_text(text: str | None) -> str:
    """Return a value for a line: quoted, so that blanks and an empty text can be seen."""
    if text is None:
        return "null"
    return ascii_only(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")


def ascii_only(text: str) -> str:
    """Return a text in quotes; if it is not plain ASCII, with the numbers of its characters too.

    >>> print(ascii_only("e"), ascii_only("é"))
    'e' 'é' (e9)
    """
    if text.isascii():
        return repr(text)
    odd = " ".join(f"{ord(letter):x}" for letter in text if not letter.isascii())
    return f"{text!r} ({odd[:60]})"


def _difference_lines(difference: Difference) -> list[str]:
    key = _key_text(difference.key)
    match difference.kind:
        case "missing":
            return [f"  {key}: missing in the target"]
        case "unexpected":
            return [f"  {key}: in the target alone"]
        case "duplicated":
            counts = f"{difference.source_rows} and {difference.target_rows} times"
            return [f"  {key}: there {counts}, at the source and in the target"]
        case _:
            return [f"  {key}: differs"] + [
                f"    {values.column}: {_value_text(values.source)} at the source, "
                f"{_value_text(values.target)} in the target"
                for values in difference.columns
            ]


def difference_of(plan: Plan, differing: Differing) -> Difference:
    """Return the difference of a key from its rows."""
    key = key_shown(plan, differing.key)
    source, target = differing.source, differing.target
    count = partial(Difference, key, source_rows=len(source), target_rows=len(target))
    if not target or not source:
        kind = "unexpected" if not source else "missing"
        return count(kind=kind)
    if len(source) != len(target):
        return count(kind="duplicated")
    columns = next(filter(None, map(_columns(plan), source, target)), ())
    return count(kind="differs", columns=columns)


def key_shown(plan: Plan, key: tuple[str | None, ...]) -> dict[str, str | None]:
    """Return a key by the names of its columns, as people read it."""
    return {c.name: shown(c.form, text) for c, text in zip(plan.key, key, strict=True)}


def _columns(plan: Plan) -> Any:  # noqa: ANN401 - a function of two rows
    def differing(source: Row, target: Row) -> tuple[ColumnValues, ...]:
        own, other = normal_row(plan, source), normal_row(plan, target)
        return tuple(
            ColumnValues(column.name, shown(column.form, mine), shown(column.form, theirs))
            for column, a, b, mine, theirs in zip(
                plan.columns,
                own,
                other,
                (*source.key, *source.texts),
                (*target.key, *target.texts),
                strict=True,
            )
            if a != b
        )

    return differing
