"""Report of a run: one JSON object per view, a table for people."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table

from changelog.contract.base.errors import ChangelogError, LockedError, RefutedError, VerdictError
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.joined import beside
from changelog.contract.rows.relation import TableName
from changelog.runtime.edge import one_line
from replay.decode.schemas import TopicSchemas
from views.base.address import Address
from views.generations.history import UNCHANGED, HistoryRow, is_of_changes
from views.verify.compare.report import VerifyReport

_SEVERAL = 2
_WIDE = 100
"""From so many columns on, a table whose cells are folded is easier to read than lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewResult:
    """Result of one view in a run."""

    view: str  # its name
    generation: int | None = None  # the number of what was built
    frontier: Frontier | None = None  # what it was built to
    topics: tuple[str, ...] = ()  # that it reads
    # how captured tables that it reads are read
    schemas: Mapping[TableName, TopicSchemas] = field(default_factory=dict)
    columns: tuple[tuple[str, str], ...] = ()  # names and types, once they are known
    verdict: str | None = None  # of the log at that frontier
    # until when the log can give that state, milliseconds since 1970; None where no moment is known
    exact_until_ms: int | None = None
    records_read: int | None = None  # from the topics of its tables
    rows: int | None = None  # of the view
    tombstones: int | None = None  # among the records
    # by stage; stages that the views of a run share count in each
    seconds: Mapping[str, float] = field(default_factory=dict)
    # True, False, or None when not asked for or not possible (of a Python view only the inputs can
    # be compared)
    verified: bool | None = None
    mismatches: int | None = None  # differences that verification found
    published: bool = False  # whether readers see it, in all sinks
    staged: bool = False  # whether it waits, whole, for somebody to publish it
    replaced: tuple[int, ...] = ()  # the staged generations that it takes the place of
    # of what is staged, where each sink can be tried
    addresses: Mapping[str, Address] = field(default_factory=dict)
    # from the moment the first sink had moved until the last one had
    switch_seconds: float | None = None
    sinks: tuple[str, ...] = ()  # where it is served
    # of a view that is followed, how far each sink is
    reach: Mapping[str, SinkReach] = field(default_factory=dict)
    mode: str = "full"  # how much was to be verified
    # whether the inputs were, of a view in Python that was proved earlier
    inputs_equal: bool = False
    reports: Mapping[str, VerifyReport] = field(default_factory=dict)  # of verification, by sink
    quarantined: int = 0  # records of its tables that could not be read; their rows are left out
    # how many rows each sink goes without, since its server refuses them
    refused: Mapping[str, int] = field(default_factory=dict)
    error: ChangelogError | None = None  # why it is not published, or None
    definition: str = ""  # fingerprint of what the rows were made by, besides the log
    origin: str = ""  # what they were made of: `start`, `checkpoint`, or how a refresh went
    warnings: tuple[str, ...] = ()  # what a reader of the view has to know of its tables
    # the view as it is declared, for the history
    declaration: Mapping[str, Any] = field(default_factory=dict)
    certificate_file: str = ""  # where its certificate is, if one was asked for

    @classmethod
    def of_row(cls, row: HistoryRow) -> ViewResult:
        """Return the result of moving readers to a generation that is on record with its proof."""
        modes = {report.get("certificate", {}).get("mode") for report in row.certificate.values()}
        return cls(
            view=row.view,
            generation=row.generation,
            verdict=row.verdict,
            rows=row.rows,
            verified=row.verified,
            mismatches=row.mismatches,
            inputs_equal=row.has_equal_inputs,
            published=True,
            switch_seconds=row.switch_seconds,
            sinks=row.sinks,
            mode=str(next(iter(modes), None) or "none"),
            origin=row.origin,
        )

    @property
    def certificates(self) -> dict[str, Any]:
        """Return the certificates of the verification as plain values, by sink."""
        return {name: report.to_json() for name, report in self.reports.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the object of `--json`."""
        fields: dict[str, Any] = {
            "view": self.view,
            "generation": self.generation,
            "frontier": frontier_json(self.frontier),
            **others_json(self.others),
            "verdict": self.verdict,
            "exact_until": None
            if self.exact_until_ms is None
            else moment(self.exact_until_ms * 1000).isoformat(),
            "records_read": self.records_read,
            "rows": self.rows,
            "tombstones": self.tombstones,
            "seconds": dict(self.seconds),
            "verified": self.verified,
            "mismatches": self.mismatches,
            "published": self.published,
            "staged": self.staged,
            "switch_seconds": self.switch_seconds,
            "sinks": list(self.sinks),
            "verify": self.mode,
            "quarantined": self.quarantined,
            "refused": dict(self.refused),
            "certificates": self.certificates,
            "origin": self.origin,
            "warnings": list(self.warnings),
        }
        if self.reach:
            fields["reached"] = {
                name: sink_reach.to_json() for name, sink_reach in self.reach.items()
            }
        if self.staged:
            fields["addresses"] = {
                name: address.shown() for name, address in self.addresses.items()
            }
            fields["replaced"] = list(self.replaced)
        if self.certificate_file:
            fields["certificate_file"] = self.certificate_file
        if self.error is not None:
            fields["error"] = one_line(self.error)
            fields["exit_code"] = self.error.exit_code
        return fields

    def to_history(self, state: str, run: str) -> HistoryRow:
        """Return the row of the history for a state of this generation."""
        frontier = self.frontier
        return HistoryRow(
            view=self.view,
            generation=self.generation or 0,
            state=state,
            run=run,
            epoch=frontier.epoch if frontier is not None else None,
            lsn=str(frontier.lsn) if frontier is not None else None,
            ts=moment(frontier.ts_us) if frontier is not None else None,
            verdict=self.verdict,
            rows=self.rows,
            records_read=self.records_read,
            tombstones=self.tombstones,
            seconds=self.seconds,
            verified=self.verified,
            mismatches=self.mismatches,
            certificate=self.certificates,
            sinks=self.sinks,
            note=one_line(self.error) if self.error is not None else self.note,
            definition=self.definition,
            origin=self.origin,
            switch_seconds=self.switch_seconds,
            declaration=self.declaration,
        )

    @property
    def is_of_changes(self) -> bool:
        """Tell whether the changed rows alone were compared, in some sink at least."""
        return is_of_changes(self.reports, self.sinks)

    @property
    def is_of_sample(self) -> bool:
        """Tell whether a sample of the rows was compared."""
        return self.mode == "sample"

    @property
    def others(self) -> list[tuple[Frontier, list[str]]]:
        """Return the frontiers of other captures that it was built to, with their topics."""
        return [] if self.frontier is None else beside(self.frontier, self.topics)

    @property
    def note(self) -> str:
        """Return remarks on the rows of a view that went well, or an empty text."""
        others = [f"beside {_place(frontier)}" for frontier, _ in self.others]
        return "; ".join(filter(None, [self.left_out, *others, *self.warnings]))

    @property
    def left_out(self) -> str:
        """Return the numbers of records and rows left out as text, empty for none."""
        parts = []
        if self.quarantined:
            many = "record" if self.quarantined == 1 else "records"
            parts.append(f"{self.quarantined:,} unreadable {many} left out, see _quarantine")
        for sink, count in self.refused.items():
            rows = "row" if count == 1 else "rows"
            parts.append(f"{count:,} {rows} that {sink} refuses left out, see _refused")
        return "; ".join(parts)


def moment(ts_us: int) -> datetime:
    """Return microseconds since 1970 as a time."""
    return datetime.fromtimestamp(ts_us // 1_000_000, UTC).replace(microsecond=ts_us % 1_000_000)


def frontier_json(frontier: Frontier | None) -> dict[str, Any] | None:
    """Return epoch, LSN and time of a frontier."""
    if frontier is None:
        return None
    time = moment(frontier.ts_us).isoformat()
    return {"epoch": frontier.epoch, "lsn": str(frontier.lsn), "ts": time}


def others_json(others: Sequence[tuple[Frontier, Sequence[str]]]) -> dict[str, Any]:
    """Return the frontiers of other captures, with the ends of their topics; nothing for none."""
    other_frontiers = [
        {
            "slot": frontier.slot,
            "system_id": frontier.system_id,
            **(frontier_json(frontier) or {}),
            "ends": {topic: list(frontier.ends.get(topic, ())) for topic in topics},
        }
        for frontier, topics in others
    ]
    return {"other_frontiers": other_frontiers} if other_frontiers else {}


def cut_lines(frontier: Frontier, topics: Collection[str]) -> list[str]:
    """Return lines with the frontier to which each capture of some topics is read."""
    others = [_place(frontier) for frontier, _ in beside(frontier, topics)]
    here = f"LSN {frontier.lsn}, epoch {frontier.epoch}"
    return [f"{here} of slot {frontier.slot}" if others else here, *others]


def _place(frontier: Frontier) -> str:
    return f"LSN {frontier.lsn}, epoch {frontier.epoch} of slot {frontier.slot}"


def fitted(table: Table, console: Console) -> Table | Group:
    """Return the table, or where the terminal is too narrow a few lines for each of its rows."""
    natural = console.measure(table, options=console.options.update(width=10_000)).maximum
    if natural <= console.width or console.width >= _WIDE:
        return table
    columns = [(str(column.header), list(column.cells)) for column in table.columns]
    lines: list[RenderableType] = [table.title] if table.title else []
    for row in range(table.row_count):
        (_, names), *others = columns
        lines.append(f"[bold]{names[row]}[/]")
        lines += [f"  {header}: {cells[row]}" for header, cells in others if cells[row]]
    return Group(*lines, *([table.caption] if table.caption else []))


def results_table(results: Sequence[ViewResult]) -> Table:
    """Return the results of the views as a table."""
    first = next((result for result in results if result.frontier is not None), None)
    table = Table(title=_cut_line(first), caption=_verdict_line(results))
    for column in ("view", "sinks", "generation", "rows", "records", "tombstones", "seconds"):
        numeric = column not in {"view", "sinks"}
        table.add_column(column, justify="right" if numeric else "left")
    table.add_column("from")
    table.add_column("certificate")
    table.add_column("published")
    for result in results:
        table.add_row(
            result.view,
            ", ".join(result.sinks),
            _number(result.generation),
            _number(result.rows),
            _number(result.records_read),
            _number(result.tombstones),
            f"{result.seconds['total']:.1f}" if "total" in result.seconds else "",
            result.origin,
            ", ".join(filter(None, [_certificate(result), result.left_out])),
            _published(result),
        )
    return table


def history_table(rows: Sequence[HistoryRow]) -> Table:
    """Return the generations of the history as a table."""
    table = Table()
    for column in ("when", "view", "generation", "state", "LSN", "rows", "verified", "note"):
        table.add_column(column, justify="right" if column in {"generation", "rows"} else "left")
    for row in rows:
        table.add_row(
            f"{row.at:%Y-%m-%d %H:%M:%S}",
            row.view,
            str(row.generation),
            row.state,
            row.lsn or "",
            _number(row.rows),
            {True: _equal(row), False: "refuted", None: ""}[row.verified],
            "; ".join(filter(None, [_apart(row), row.note])),
        )
    return table


def staged_lines(result: ViewResult) -> list[str]:
    """Return lines with the address of a staged generation and the next commands."""
    older = ", ".join(map(str, result.replaced))
    view = result.view
    return [
        f"{view}: generation {result.generation} is staged, no reader sees it"
        + (f"; it replaces {older}" if older else ""),
        *(f"  try it: {address}" for address in result.addresses.values()),
        f"  then: rebuild-view {view} --diff, --publish or --abort",
    ]


def _published(result: ViewResult) -> str:
    if result.staged:
        return "[yellow]staged[/]"
    late = [
        sink_reach.shown(name) for name, sink_reach in result.reach.items() if sink_reach.is_behind
    ]
    if late and result.error is None:
        return f"[yellow]{'; '.join(late)}[/]"
    if not result.published:
        return "[red]no[/]"
    return ", ".join(filter(None, ["[green]yes[/]", _apart(result)]))


def _apart(moved: ViewResult | HistoryRow) -> str:
    """Return the time for which a view's sinks differed while readers moved, as text."""
    if moved.switch_seconds is None or len(moved.sinks) < _SEVERAL:
        return ""
    return f"sinks moved within {moved.switch_seconds * 1000:,.0f} ms"


def _cut_line(result: ViewResult | None) -> str | None:
    if result is None or (frontier := result.frontier) is None:
        return None
    time = f"{moment(frontier.ts_us):%Y-%m-%d %H:%M:%S}"
    line = f"state at LSN {frontier.lsn}, {time} UTC, epoch {frontier.epoch}"
    if not result.others:
        return line
    return "\nand ".join(
        [f"{line} of slot {frontier.slot}", *(_place(f) for f, _ in result.others)]
    )


def _equal(proved: ViewResult | HistoryRow) -> str:
    """Describe the rows that were compared and are equal."""
    if proved.is_of_changes:
        return "changed rows equal"
    return "sample equal" if proved.is_of_sample else "equal, row by row"


def _certificate(result: ViewResult) -> str:
    if result.verified is None and result.origin == UNCHANGED:
        return "nothing has changed"
    if result.verified is None:
        compared = result.inputs_equal or bool(result.reports)
        inputs = (result.published or result.staged) and compared
        return "[green]inputs equal[/]" if inputs else "not verified"
    if result.verified:
        return f"[green]{_equal(result)}[/]"
    return f"[red]refuted: {result.mismatches} mismatches[/]"


def _verdict_line(results: Sequence[ViewResult]) -> str | None:
    verdicts = {result.verdict for result in results if result.verdict is not None}
    warnings = dict.fromkeys(warning for result in results for warning in result.warnings)
    lines = [f"the log: {'; '.join(sorted(verdicts))}"] if verdicts else []
    return "\n".join([*lines, *(f"warning: {warning}" for warning in warnings)]) or None


def _number(value: int | None) -> str:
    return f"{value:,}" if value is not None else ""


@dataclass(frozen=True, slots=True)
class SinkReach:
    """The position that a sink of a followed view has reached."""

    position: Position  # the first that it does not hold; of what lies before it, it holds all
    # for how long it has lacked the oldest rows that it lacks; 0 where it lacks none
    behind_s: float = 0.0
    # whether it lacks more than is kept for it, so that it catches up by a round of Spark's
    is_left: bool = False
    why: str = ""  # what keeps it from having them, empty where nothing is known to

    @property
    def is_behind(self) -> bool:
        """Tell whether it lacks rows."""
        return self.behind_s > 0

    def to_json(self) -> dict[str, Any]:
        """Return the object of `--json`."""
        fields: dict[str, Any] = {
            "epoch": self.position.epoch,
            "lsn": str(self.position.commit_lsn),
            "seconds_behind": round(self.behind_s, 3),
        }
        if self.is_left:
            fields["left_behind"] = True
        if self.why:
            fields["error"] = self.why
        return fields

    def shown(self, sink: str) -> str:
        """Return the text about a sink that lags: how far, and where it is."""
        how = ", left behind" if self.is_left else ""
        return f"{sink} {self.behind_s:,.0f} s behind, at {self.position.commit_lsn}{how}"


_WORST_FIRST = (
    RefutedError.exit_code,
    VerdictError.exit_code,
    ChangelogError.exit_code,
    2,  # usage or configuration, of several families of errors
    LockedError.exit_code,
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a run."""

    results: tuple[ViewResult, ...]  # one for each view, also for those that failed
    # the worst of theirs, or that of the run when it has no result; None when all is well
    error: ChangelogError | None = None

    @classmethod
    def of(cls, results: Iterable[ViewResult]) -> Outcome:
        """Combine the results of several views."""
        whole = tuple(results)
        return cls(whole, worst(result.error for result in whole))

    def errors(self) -> list[ChangelogError]:
        """Return each error once: views that failed for one reason share it."""
        own = [result.error for result in self.results if result.error is not None]
        distinct = list({id(error): error for error in own}.values())
        return distinct or ([self.error] if self.error is not None else [])


def worst(errors: Iterable[ChangelogError | None]) -> ChangelogError | None:
    """Return the error whose exit code matters most: refuted, verdict, failed, usage, locked."""
    present = [error for error in errors if error is not None]
    return min(present, key=lambda error: _WORST_FIRST.index(error.exit_code), default=None)
