"""The report of a comparison: for people, and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from changelog.compare.plan import ComparePlan
from changelog.compare.side import Key, Moment, SideRow
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
    kind: str  # missing, unexpected, differs or duplicated, as seen from the source
    columns: tuple[ColumnValues, ...] = ()
    source_rows: int = 1
    target_rows: int = 1
    written_by: str = ""  # the place of the record that wrote the target's row, if that is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a comparison."""

    source: str
    target: str
    source_rows: int
    target_rows: int
    mismatches: int
    is_at_least: bool  # whether more buckets differ, whose rows were not fetched
    differences: tuple[Difference, ...]
    open: tuple[Mapping[str, str | None], ...]
    compared: tuple[str, ...]
    not_compared: Mapping[str, str]
    notes: tuple[str, ...]
    settle_s: float
    sample: float  # the fraction of the keys; 1 for all
    looks: int
    seconds: float
    plan: ComparePlan
    refuted: tuple[Key, ...]  # all keys that differ, as the sides write them
    undecided: frozenset[int]  # ranks of compared buckets that have keys without a verdict
    began: Moment  # before either side was read
    ended: Moment

    @property
    def verified(self) -> bool | None:
        """Return whether the two are equal, or None if that is unknown."""
        if self.mismatches:
            return False
        return None if self.open or self.is_empty_sample else True

    @property
    def is_empty_sample(self) -> bool:
        """Return whether the sample has no row of either side, which proves nothing."""
        return self.sample < 1 and not self.source_rows and not self.target_rows

    def to_json(self) -> dict[str, Any]:
        """Return the report as an object of JSON."""
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
        """Return the lines of the report for people."""
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
            lines.append("  the sample has no row, so nothing was compared")
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
            first_keys = "; ".join(key_text(key) for key in self.open[:3])
            lines.append(
                f"  not compared: {len(self.open):,} keys that kept changing, such as {first_keys}"
            )
        lines.append(f"  {self.seconds:.1f} s, {self.looks} looks at keys that differed")
        return lines


def _difference_json(difference: Difference) -> dict[str, Any]:
    return {
        "key": dict(difference.key),
        "kind": difference.kind,
        "rows_source": difference.source_rows,
        "rows_target": difference.target_rows,
        "written_by": difference.written_by,
        "columns": {
            values.column: {"source": values.source, "target": values.target}
            for values in difference.columns
        },
    }


def key_text(key: Mapping[str, str | None]) -> str:
    """Return a key for people: its columns with their values in quotes."""
    return ", ".join(f"{name}={_value_text(text)}" for name, text in key.items())


def _value_text(text: str | None) -> str:
    """Return a value in quotes, so that blanks and an empty text are visible."""
    if text is None:
        return "null"
    return ascii_only(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")


def ascii_only(text: str) -> str:
    """Return a text in quotes, followed by the code points of its characters outside ASCII.

    >>> print(ascii_only("e"), ascii_only("é"))
    'e' 'é' (e9)
    """
    if text.isascii():
        return repr(text)
    odd = " ".join(f"{ord(letter):x}" for letter in text if not letter.isascii())
    return f"{text!r} ({odd[:60]})"


def _difference_lines(difference: Difference) -> list[str]:
    lines = [f"  {key_text(difference.key)}: {_kind_text(difference)}"]
    lines += [
        f"    {values.column}: {_value_text(values.source)} at the source, "
        f"{_value_text(values.target)} in the target"
        for values in difference.columns
    ]
    if difference.written_by:
        lines.append(f"    written by {difference.written_by}")
    return lines


def _kind_text(difference: Difference) -> str:
    match difference.kind:
        case "missing":
            return "missing in the target"
        case "unexpected":
            return "only in the target"
        case "duplicated":
            counts = f"{difference.source_rows} rows at the source, {difference.target_rows}"
            return f"{counts} in the target"
        case _:
            return "differs"


def difference_of(plan: ComparePlan, differing: Differing, written_by: str) -> Difference:
    """Return the difference between a key's rows on the two sides."""
    key = key_shown(plan, differing.key)
    source, target = differing.source, differing.target
    count = partial(
        Difference,
        key,
        source_rows=len(source),
        target_rows=len(target),
        written_by=written_by,
    )
    if not target or not source:
        kind = "unexpected" if not source else "missing"
        return count(kind=kind)
    if len(source) != len(target):
        return count(kind="duplicated")
    columns = next(filter(None, map(_columns(plan), source, target)), ())
    return count(kind="differs", columns=columns)


def key_shown(plan: ComparePlan, key: tuple[str | None, ...]) -> dict[str, str | None]:
    """Return the values of a key by column name, as people read them."""
    return {c.name: shown(c.form, text) for c, text in zip(plan.key, key, strict=True)}


def _columns(plan: ComparePlan) -> Any:  # noqa: ANN401 - a function of two rows
    def differing(source: SideRow, target: SideRow) -> tuple[ColumnValues, ...]:
        return tuple(
            ColumnValues(
                column.name, shown(column.form, source_text), shown(column.form, target_text)
            )
            for column, source_normal, target_normal, source_text, target_text in zip(
                plan.columns,
                normal_row(plan, source),
                normal_row(plan, target),
                (*source.key, *source.texts),
                (*target.key, *target.texts),
                strict=True,
            )
            if source_normal != target_normal
        )

    return differing
