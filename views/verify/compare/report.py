"""The result of a verification: a verdict, the differing rows, and the certificate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from changelog.contract.base.errors import RefutedError

_MOST_CHARACTERS = 60
_UNPUBLISHED = "the generation is not published: readers see what they saw before"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One value, or one row, that differs."""

    key: Mapping[str, str]  # the row's key as text
    kind: str  # `missing` (not served), `extra` (served, must not be) or `different`
    column: str | None  # the column that differs, None when the whole row does
    expected: str | None  # the recomputed value, None when there is none or it is null
    served: str | None  # the served value, None when there is none or it is null
    # place of the row's record, `topic:partition:offset`; None when it does not come from a single
    # record
    offset: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """The outcome of verifying one view at one address, or one table against its source."""

    view: str  # its name
    # True when all rows agree, False when one differs, None when it could not be verified; `notes`
    # says why
    verified: bool | None
    rows_expected: int  # recomputed rows
    rows_served: int  # rows at the address
    mismatches: int  # rows that are missing, extra or different
    differences: tuple[Mismatch, ...] = ()  # the first of them, by key
    seconds: float = 0.0  # how long it took
    notes: tuple[str, ...] = ()  # for the readers of the verdict
    # the facts of the comparison, its frontier among them, storable as JSON
    certificate: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return asdict(self)

    def raise_on_mismatch(self, *, hint: str = _UNPUBLISHED, serving: str | None = None) -> None:
        """Raise if the view was refuted.

        `serving`: the sink, if the rows are those that readers see; None for unpublished rows.
        """
        if self.verified is not False:
            return
        first = f": {described(self.differences[0])}" if self.differences else ""
        where = ""
        if serving is not None:
            where = f" in {serving}, where readers see it"
            hint = (
                f"the sink was altered, or a changed key was missed; `rebuild-view {self.view}` "
                f"writes and proves the view anew, and so does `rebuild-view {self.view} "
                "--refresh` where nobody follows it"
            )
        raise RefutedError(
            f'view "{self.view}" is refuted{where}: {self.mismatches} of {self.rows_expected} rows '
            f"differ{first}",
            hint=hint,
        )

    def render(self) -> Group:
        """Return the report for a terminal."""
        word, style = _VERDICTS[self.verified]
        title = Text.assemble(
            (f"{self.view} ", "bold"),
            (word, style),
            f"  {self.rows_expected:,} rows expected, {self.rows_served:,} served, "
            f"{self.mismatches:,} mismatches, {self.seconds:.1f} s",
        )
        notes = [Text(f"  {note}", style="dim") for note in self.notes]
        return Group(
            title, *notes, *([_mismatch_table(self.differences)] if self.differences else [])
        )


def verdict_of(reports: Iterable[VerifyReport]) -> bool | None:
    """Tell whether all reports are proofs.

    None if there are no reports, or if one is open and none refutes.
    """
    verdicts = [report.verified for report in reports]
    if not verdicts or (None in verdicts and False not in verdicts):
        return None
    return False not in verdicts


_VERDICTS: dict[bool | None, tuple[str, str]] = {
    True: ("verified", "bold green"),
    False: ("refuted", "bold red"),
    None: ("not verified", "bold yellow"),
}


def described(difference: Mismatch) -> str:
    """Return one line about a difference."""
    key = ", ".join(f"{name}={value}" for name, value in difference.key.items())
    where = f" at {difference.offset}" if difference.offset else ""
    if difference.kind == "different":
        column = difference.column or "the row"
        return (
            f"{key}: {column} is {_short(difference.served)}, "
            f"must be {_short(difference.expected)}{where}"
        )
    return f"{key}: {difference.kind}{where}"


def _short(value: str | None) -> str:
    if value is None:
        return "null"
    return value if len(value) <= _MOST_CHARACTERS else value[: _MOST_CHARACTERS - 1] + "…"


def _mismatch_table(differences: tuple[Mismatch, ...]) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    for name in ("key", "kind", "column", "expected", "served", "offset"):
        table.add_column(name, overflow="fold")
    for difference in differences:
        table.add_row(
            Text(", ".join(f"{name}={value}" for name, value in difference.key.items())),
            difference.kind,
            Text(difference.column or ""),
            Text(_short(difference.expected)),
            Text(_short(difference.served)),
            difference.offset or "",
        )
    return table
