"""Results that a notebook can show: runs, generations, proofs, differences, cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from replay.api.rows import key_text
from replay.api.sheet import MOST_ROWS, Sheet, SheetValue
from views.explain.explanation import Explanation
from views.generations.history import HistoryRow
from views.rebuild.diff import ViewDiff
from views.rebuild.result.report import ViewResult
from views.verify.compare.report import Mismatch, VerifyReport

_PROVED = {True: "verified", False: "refuted", None: "not verified"}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ViewRun(SheetValue):
    """The result of a successful run for one view.

    Attributes:
        view: its name.
        generation: what was built, published or gone back to.
        lsn: what its rows are true at; None where the run has not built it.
        rows: of the view; likewise.
        verified: True; None where it was not asked for, or not possible.
        published: whether readers see it.
        staged: whether it waits for `publish`.
        seconds: by stage.
        sinks: where it is served.
        verdict: on the log; None where nothing was read.
    """

    view: str
    generation: int | None
    lsn: str | None
    rows: int | None
    verified: bool | None
    published: bool
    staged: bool
    seconds: Mapping[str, float] = field(compare=False)
    sinks: tuple[str, ...]
    verdict: str | None

    @classmethod
    def of(cls, result: ViewResult) -> ViewRun:
        """Return the value of a result without an error."""
        return cls(
            view=result.view,
            generation=result.generation,
            lsn=None if result.frontier is None else str(result.frontier.lsn),
            rows=result.rows,
            verified=result.verified,
            published=result.published,
            staged=result.staged,
            seconds=dict(result.seconds),
            sinks=result.sinks,
            verdict=result.verdict,
        )

    @property
    def took(self) -> float | None:
        """Return the seconds of the whole run, or None if nothing was built."""
        return self.seconds.get("total")

    def cells(self) -> tuple[str, ...]:
        """Return its line in a table."""
        state = "published" if self.published else "staged" if self.staged else ""
        proved = "" if self.rows is None else _PROVED[self.verified]
        rows = "" if self.rows is None else f"{self.rows:,}"
        took = "" if self.took is None else f"{self.took:.1f} s"
        return (
            self.view, str(self.generation), state, rows, proved, self.lsn or "", took,
            ", ".join(self.sinks),
        )  # fmt: skip

    def sheet(self) -> Sheet:
        """Return it as a table."""
        return Sheet("run", RUN_COLUMNS, [self.cells()])


RUN_COLUMNS = ("view", "generation", "state", "rows", "proof", "LSN", "took", "sinks")


@dataclass(frozen=True, slots=True, repr=False)
class Runs(SheetValue):
    """The results of one run for several views."""

    found: tuple[ViewRun, ...]

    def __len__(self) -> int:
        """Return the number of views."""
        return len(self.found)

    def __iter__(self) -> Iterator[ViewRun]:
        """Iterate over the runs."""
        return iter(self.found)

    def sheet(self) -> Sheet:
        """Return them as a table."""
        return Sheet("run", RUN_COLUMNS, [run.cells() for run in self.found])


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One complete build of a view, at its last step.

    Attributes:
        number: its number.
        state: what it came to: `published`, `staged`, `retired`, `refuted`, …
        at: when.
        lsn: what its rows are true at.
        rows: of the view.
        verified: None where it was not asked for, or not possible.
        seconds: by stage, of its build.
        note: why, when there is something to say.
    """

    number: int
    state: str
    at: datetime
    lsn: str | None
    rows: int | None
    verified: bool | None
    seconds: Mapping[str, float] = field(compare=False)
    note: str

    @property
    def took(self) -> float | None:
        """Return the seconds of the whole build, or None if they are not recorded."""
        return self.seconds.get("total")

    @classmethod
    def of(cls, row: HistoryRow) -> Generation:
        """Return the value of a row of the history."""
        return cls(
            number=row.generation,
            state=row.state,
            at=row.at,
            lsn=row.lsn,
            rows=row.rows,
            verified=row.verified,
            seconds=dict(row.seconds),
            note=row.note,
        )


@dataclass(frozen=True, slots=True, repr=False)
class Generations(SheetValue):
    """The generations of a view that the history knows, the oldest first."""

    view: str
    found: tuple[Generation, ...]

    def __len__(self) -> int:
        """Return the number of generations."""
        return len(self.found)

    def __iter__(self) -> Iterator[Generation]:
        """Iterate over the generations."""
        return iter(self.found)

    def __getitem__(self, place: int) -> Generation:
        """Return one by its place."""
        return self.found[place]

    def sheet(self) -> Sheet:
        """Return the newest as a table."""
        rows = [
            (
                str(generation.number),
                generation.state,
                generation.at.isoformat(timespec="seconds"),
                generation.lsn or "",
                "" if generation.rows is None else f"{generation.rows:,}",
                _PROVED[generation.verified],
                generation.note,
            )
            for generation in self.found[-MOST_ROWS:][::-1]
        ]
        columns = ("generation", "state", "at", "LSN", "rows", "proof", "note")
        caption = f"{self.view}: generations, the newest first"
        return Sheet(caption, columns, rows, count=len(self.found))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Proof(SheetValue):
    """The result of verifying a generation.

    Attributes:
        view: its name.
        generation: its number.
        sink: whose rows were compared.
        lsn: what they have to be true at.
        verified: True when all agrees, False when something differs, None when it could not be
            compared.
        rows_expected: rows as computed from the log by DuckDB.
        rows_served: rows that were found.
        mismatches: rows that are missing, extra or different.
        differences: the first of them; of a proof from the history none.
        notes: what a reader of the verdict has to know.
        certificate: what was compared, as it stands in the history.
    """

    view: str
    generation: int
    sink: str
    lsn: str
    verified: bool | None
    rows_expected: int
    rows_served: int
    mismatches: int
    differences: tuple[Mismatch, ...] = ()
    notes: tuple[str, ...] = ()
    certificate: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, report: VerifyReport, generation: int, sink: str, lsn: str) -> Proof:
        """Return the value of a report."""
        return cls(
            view=report.view,
            generation=generation,
            sink=sink,
            lsn=lsn,
            verified=report.verified,
            rows_expected=report.rows_expected,
            rows_served=report.rows_served,
            mismatches=report.mismatches,
            differences=report.differences,
            notes=report.notes,
            certificate=report.certificate,
        )

    def sheet(self) -> Sheet:
        """Return the differences as a table."""
        rows = [
            (
                key_text(difference.key),
                difference.kind,
                difference.column or "",
                "null" if difference.expected is None else difference.expected,
                "null" if difference.served is None else difference.served,
                difference.offset or "",
            )
            for difference in self.differences[:MOST_ROWS]
        ]
        caption = (
            f"{self.view}, generation {self.generation} in {self.sink} at LSN {self.lsn}: "
            f"{_PROVED[self.verified]}, {self.rows_expected:,} rows expected, "
            f"{self.rows_served:,} served, {self.mismatches:,} mismatches"
        )
        columns = ("key", "what", "column", "expected", "served", "record")
        return Sheet(caption, columns, rows, self.notes, len(self.differences))


@dataclass(frozen=True, slots=True, repr=False)
class Diff(SheetValue):
    """The difference between a generation and the one that serves.

    Attributes:
        found: counts, columns and the first rows of each kind.
    """

    found: ViewDiff

    @property
    def is_empty(self) -> bool:
        """Tell whether the two generations have the same rows."""
        return not (self.found.added or self.found.removed or self.found.changed)

    def sheet(self) -> Sheet:
        """Return the first rows as a table."""
        compared = self.found
        rows = [
            (
                sample.kind,
                key_text(sample.key),
                sample.column or "",
                sample.before or "",
                sample.after or "",
            )
            for sample in compared.samples
        ]
        caption = (
            f"{compared.view}: generation {compared.generation} beside {compared.serving}, "
            f"which serves: "
            f"{compared.added:,} added, {compared.removed:,} removed, {compared.changed:,} changed"
        )
        notes = [
            *compared.columns.lines(),
            *(f"{c}: {n:,} rows" for c, n in compared.by_column.items()),
        ]
        return Sheet(caption, ("what", "key", "column", "before", "after"), rows, notes)


@dataclass(frozen=True, slots=True, repr=False)
class RowOrigin(SheetValue):
    """The origin of a row of a view.

    Attributes:
        found: frontier, columns, and the records of each table.
    """

    found: Explanation

    def sheet(self) -> Sheet:
        """Return it as lines."""
        caption, *lines = self.found.lines()
        return Sheet(caption, (), (), lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseOutcome:
    """The result of one case of a view.

    Attributes:
        view: its name.
        case: the case's name.
        passed: whether every engine gives what is expected.
        why: what is not as expected, by engine.
    """

    view: str
    case: str
    passed: bool
    why: Mapping[str, str]


@dataclass(frozen=True, slots=True, repr=False)
class Cases(SheetValue):
    """The results of the cases of a project's views."""

    found: tuple[CaseOutcome, ...]

    @property
    def passed(self) -> bool:
        """Tell whether all cases passed."""
        return all(case.passed for case in self.found)

    def __len__(self) -> int:
        """Return the number of cases."""
        return len(self.found)

    def __iter__(self) -> Iterator[CaseOutcome]:
        """Iterate over the cases."""
        return iter(self.found)

    def sheet(self) -> Sheet:
        """Return them as a table."""
        rows = [
            (
                case.view,
                case.case,
                "passed" if case.passed else "FAILED",
                "; ".join(f"{engine}: {why}" for engine, why in case.why.items()),
            )
            for case in self.found
        ]
        failed = sum(not case.passed for case in self.found)
        caption = f"{len(self.found) - failed} of {len(self.found)} cases passed"
        return Sheet(caption, ("view", "case", "", "why"), rows)
