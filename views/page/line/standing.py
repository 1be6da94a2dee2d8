"""State of the line as values, with its problems and their remedies. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Any

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.pattern import pasted
from views.generations.history import (
    DROPPED,
    FAILED,
    PUBLISHED,
    REFUTED,
    STAGED,
    HistoryRow,
    as_built,
)
from views.page.line.looking import LastAnswer


class Severity(IntEnum):
    """The severity of a fact about the line, the worst last."""

    OK = 0
    NOTE = 1
    UNKNOWN = 2
    PROBLEM = 3

    @property
    def word(self) -> str:
        """Return the name for people."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class LineStanding:
    """A fact about the line, its severity, and the command that helps."""

    level: Severity
    text: str  # the fact in a sentence
    mend: str = ""  # the command, or an empty text


@dataclass(frozen=True, slots=True)
class SinkState:
    """The state of one sink of a view."""

    generation: int | None  # the generation that readers see; None for none
    lsn: str | None = None  # the LSN of the last refresh; None if it was never refreshed


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredView:
    """The declaration of a view in the project."""

    name: str
    sinks: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()  # the tables that it reads
    key: tuple[str, ...] = ()  # the columns of its key
    description: str = ""  # a sentence, or an empty text
    error: str = ""  # the reason why its file cannot be used, or an empty text


@dataclass(frozen=True, slots=True, kw_only=True)
class LogProgress:
    """The progress of the log."""

    lsn: str | None = None  # the LSN of its newest frontier; None without one
    lag_s: float | None = None  # the greatest possible age of the oldest commit that it lacks
    wal_lsn: str | None = None  # the end of the source's WAL


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewLine:
    """The state of a view."""

    declared: DeclaredView
    standings: tuple[LineStanding, ...]  # facts about it, the worst first
    # the generation that readers see; None if there is none, or it is unknown
    serving: int | None = None
    lsn: str | None = None  # the LSN at which its rows are true; of its sinks the least
    lag_s: float | None = None  # the greatest possible age of the oldest commit that it lacks
    lag_bytes: int | None = None  # the WAL between its rows and the source's end
    rows: int | None = None  # the number of rows of the generation that serves
    proof: str = ""  # the result of that generation's verification
    last: HistoryRow | None = None  # the last step in its history
    next: datetime | None = None  # the next time at which a schedule rebuilds it
    staged: int | None = None  # the generation that waits to be published
    sinks: Mapping[str, LastAnswer[SinkState]] = field(default_factory=dict)

    @property
    def worst(self) -> LineStanding:
        """Return the worst fact about the view."""
        return self.standings[0]


PROOFS = {True: "proved", False: "refuted", None: "not proved"}


def log_of(status: Mapping[str, Any] | None) -> LogProgress:
    """Return the log's progress by the output of `changelog status`."""
    if not status or "problems" not in status:
        return LogProgress()
    frontier = status.get("frontier") or {}
    return LogProgress(
        lsn=frontier.get("lsn"), lag_s=status.get("lag_s"), wal_lsn=status.get("wal_lsn")
    )


def view_line(
    declared: DeclaredView,
    *,
    sinks: Mapping[str, LastAnswer[SinkState]],
    history: LastAnswer[Sequence[HistoryRow]],
    log: LogProgress,
    refused: Mapping[str, str],
    due: datetime | None,
    now: datetime,
) -> ViewLine:
    """Return the state of a view.

    `sinks` has the answer of each sink; `history` the rows of all views, oldest first; `refused`
    the tables that cannot be read exactly now, with the reason; `due` the next time at which a
    schedule rebuilds the view.
    """
    rows = [row for row in history.value or () if row.view == declared.name]
    serving = _serving(sinks)
    built = None if serving is None else as_built(rows, serving)
    lsn = _least(sinks, built)
    staged = _staged(rows)
    standings = [
        *_of_declaration(declared),
        *_of_sinks(declared, sinks),
        *_of_history(declared, sinks, history=history, rows=rows, built=built, serving=serving),
        *_of_tables(declared, refused),
    ]
    if staged is not None:
        text = f"generation {staged} is staged and waits to be published"
        standings.append(
            LineStanding(Severity.NOTE, text, f"rebuild-view {declared.name} --publish")
        )
    if not standings:
        is_of_changes = built is not None and built.is_of_changes
        proved = "its changed rows are proved" if is_of_changes else "proved"
        standings.append(LineStanding(Severity.OK, f"{proved}, and served by all of its sinks"))
    standings.sort(key=lambda standing: -standing.level)
    return ViewLine(
        declared=declared,
        standings=tuple(standings),
        serving=serving,
        lsn=lsn,
        lag_s=_lag_s(lsn, log, built, now),
        lag_bytes=_between(lsn, log.wal_lsn),
        rows=None if built is None else built.rows,
        proof="" if built is None else _proof(built),
        last=rows[-1] if rows else None,
        next=due,
        staged=staged,
        sinks=sinks,
    )


def _serving(sinks: Mapping[str, LastAnswer[SinkState]]) -> int | None:
    """Return the one generation that all sinks serve; None if they differ or one is unknown."""
    numbers = {answer.value.generation if answer.value else None for answer in sinks.values()}
    return numbers.pop() if len(numbers) == 1 else None


def _least(sinks: Mapping[str, LastAnswer[SinkState]], built: HistoryRow | None) -> str | None:
    built_lsn = None if built is None else built.lsn
    places = [
        (answer.value.lsn if answer.value else None) or built_lsn for answer in sinks.values()
    ]
    parsed = [lsn for place in places if (lsn := _parsed(place)) is not None]
    return str(min(parsed)) if parsed and len(parsed) == len(places) else None


def _staged(rows: Sequence[HistoryRow]) -> int | None:
    states = {row.generation: row.state for row in rows}
    return max((number for number, state in states.items() if state == STAGED), default=None)


def _of_declaration(declared: DeclaredView) -> Iterator[LineStanding]:
    if declared.error:
        yield LineStanding(Severity.PROBLEM, declared.error, f"changelog test {declared.name}")


def _of_sinks(
    declared: DeclaredView, sinks: Mapping[str, LastAnswer[SinkState]]
) -> Iterator[LineStanding]:
    for name, answer in sinks.items():
        if answer.value is None:
            yield LineStanding(Severity.UNKNOWN, f"{name}: {answer.why}", "changelog doctor")
    numbers = {name: answer.value.generation for name, answer in sinks.items() if answer.value}
    if len(set(numbers.values())) > 1:
        listed = ", ".join(f"{name} {number or 'none'}" for name, number in numbers.items())
        yield LineStanding(
            Severity.PROBLEM,
            f"its sinks serve different generations: {listed}",
            f"rebuild-view {declared.name}",
        )


def _of_history(
    declared: DeclaredView,
    sinks: Mapping[str, LastAnswer[SinkState]],
    *,
    history: LastAnswer[Sequence[HistoryRow]],
    rows: Sequence[HistoryRow],
    built: HistoryRow | None,
    serving: int | None,
) -> Iterator[LineStanding]:
    rebuild, last = f"rebuild-view {declared.name}", rows[-1] if rows else None
    if history.value is None:
        yield LineStanding(Severity.UNKNOWN, f"its history: {history.why}", "changelog doctor")
        return
    if last is not None and last.state in {REFUTED, FAILED}:
        outcome = "was refuted" if last.state == REFUTED else "failed"
        text = f"generation {last.generation} {outcome}: {last.note or f'{last.mismatches} rows'}"
        yield LineStanding(Severity.PROBLEM, text, f"{rebuild} --history")
    if last is None or last.state == DROPPED:
        if not declared.error:
            yield LineStanding(Severity.NOTE, "was never built", rebuild)
    elif (lost := _lost(rows, sinks)) is not None:
        text = f"no sink serves a generation, though generation {lost} was published"
        yield LineStanding(Severity.PROBLEM, text, rebuild)
    elif built is not None and built.verified is False:
        yield LineStanding(Severity.PROBLEM, f"generation {serving} is refuted and serves", rebuild)
    elif built is not None and built.verified is None:
        yield LineStanding(Severity.NOTE, f"generation {serving} is not proved", rebuild)
    elif serving is not None and built is None:
        text = f"generation {serving} serves and is not in the history"
        yield LineStanding(Severity.UNKNOWN, text, rebuild)


def _lost(rows: Sequence[HistoryRow], sinks: Mapping[str, LastAnswer[SinkState]]) -> int | None:
    """Return the generation that was published last, if all sinks now serve none."""
    if not sinks or any(
        answer.value is None or answer.value.generation for answer in sinks.values()
    ):
        return None
    return next((row.generation for row in reversed(rows) if row.state == PUBLISHED), None)


def _of_tables(declared: DeclaredView, refused: Mapping[str, str]) -> Iterator[LineStanding]:
    for table in declared.tables:
        if table in refused:
            text = f"table {table} cannot be read exactly now: {refused[table]}"
            yield LineStanding(Severity.PROBLEM, text, f"changelog resnapshot {pasted(table)}")


def _proof(built: HistoryRow) -> str:
    if built.verified and built.is_of_changes:
        return "changed rows proved"
    proof = PROOFS[built.verified]
    compared = [report.get("rows_expected") for report in built.certificate.values()]
    counts = [count for count in compared if isinstance(count, int)]
    return f"{proof}, {min(counts):,} rows" if built.verified and counts else proof


def _lag_s(
    lsn: str | None, log: LogProgress, built: HistoryRow | None, now: datetime
) -> float | None:
    """Return the greatest possible age of the oldest commit that the view lacks."""
    view_lsn, log_lsn = _parsed(lsn), _parsed(log.lsn)
    if view_lsn is None:
        return None
    if log_lsn is not None and view_lsn >= log_lsn:
        return log.lag_s
    if built is None or built.ts is None:
        return None
    return max((now - built.ts).total_seconds(), 0.0)


def _between(lsn: str | None, end: str | None) -> int | None:
    first, last = _parsed(lsn), _parsed(end)
    return None if first is None or last is None else max(last - first, 0)


def _parsed(text: str | None) -> Lsn | None:
    try:
        return None if text is None else Lsn.parse(text)
    except ConfigurationError:
        return None
