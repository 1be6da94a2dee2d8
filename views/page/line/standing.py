"""State of the line as values, and the worst state of each view. Pure."""

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
from views.page.line.looking import Seen


class Severity(IntEnum):
    """The level of a standing, the worst last."""

    OK = 0
    NOTE = 1
    UNKNOWN = 2
    PROBLEM = 3

    @property
    def word(self) -> str:
        """Return its name, as people read it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class LineStanding:
    """A fact about the line, its level, and the command that mends it."""

    level: Severity  # how bad it is
    text: str  # a sentence about it
    mend: str = ""  # a command, or an empty text


@dataclass(frozen=True, slots=True)
class SinkState:
    """State of one sink of a view."""

    generation: int | None  # that readers see; None for none
    lsn: str | None = None  # up to which it went forward; None where it never did


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredView:
    """Declaration of a view in the project."""

    name: str  # its name
    sinks: tuple[str, ...] = ()  # where it is served
    tables: tuple[str, ...] = ()  # that it reads
    key: tuple[str, ...] = ()  # its key's columns
    description: str = ""  # a sentence, or an empty text
    wrong: str = ""  # why its file cannot be used, or an empty text


@dataclass(frozen=True, slots=True, kw_only=True)
class LogProgress:
    """How far the log is."""

    lsn: str | None = None  # of its newest frontier; None without one
    lag_s: float | None = None  # how old the oldest commit can be that it lacks
    wal_lsn: str | None = None  # where the source's WAL ends


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewLine:
    """A view with all that is so of it."""

    declared: DeclaredView  # by the project
    standings: tuple[LineStanding, ...]  # all that is so of it, the worst first
    # the generation that readers see; None where there is none, or that is unknown
    serving: int | None = None
    lsn: str | None = None  # what its rows are true at; the least of its sinks
    lag_s: float | None = None  # how old the oldest commit can be that its readers lack, in seconds
    lag_bytes: int | None = None  # the WAL between its rows and the source's end
    rows: int | None = None  # of the generation that serves
    proof: str = ""  # what the certificate of that generation says
    last: HistoryRow | None = None  # the last step of a run
    next: datetime | None = None  # when a schedule rebuilds it
    staged: int | None = None  # the generation that waits to be published
    sinks: Mapping[str, Seen[SinkState]] = field(default_factory=dict)  # what each tells

    @property
    def worst(self) -> LineStanding:
        """Return the worst of what is so."""
        return self.standings[0]


PROOFS = {True: "proved", False: "refuted", None: "not proved"}


def log_of(status: Mapping[str, Any] | None) -> LogProgress:
    """Return the log's progress from the output of `changelog status`."""
    if not status or "problems" not in status:
        return LogProgress()
    frontier = status.get("frontier") or {}
    return LogProgress(
        lsn=frontier.get("lsn"), lag_s=status.get("lag_s"), wal_lsn=status.get("wal_lsn")
    )


def view_line(
    declared: DeclaredView,
    *,
    sinks: Mapping[str, Seen[SinkState]],
    history: Seen[Sequence[HistoryRow]],
    log: LogProgress,
    refused: Mapping[str, str],
    due: datetime | None,
    now: datetime,
) -> ViewLine:
    """Return the state of a view.

    `declared`: by the project. `sinks`: what each of them tells. `history`: of all views, oldest
    first. `refused`: tables that cannot be read exactly now, with the reason. `due`: when a
    schedule rebuilds it.
    """
    own = [row for row in history.value or () if row.view == declared.name]
    serving = _serving(sinks)
    built = None if serving is None else as_built(own, serving)
    lsn = _least(sinks, built)
    staged = _staged(own)
    standings = [
        *_of_declaration(declared),
        *_of_sinks(declared, sinks),
        *_of_history(declared, sinks, history=history, own=own, built=built, serving=serving),
        *_of_tables(declared, refused),
    ]
    if staged is not None:
        text = f"generation {staged} is staged and waits to be published"
        standings.append(
            LineStanding(Severity.NOTE, text, f"rebuild-view {declared.name} --publish")
        )
    if not standings:
        of_changes = built is not None and built.is_of_changes
        proved = "its changed rows are proved" if of_changes else "proved"
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
        last=own[-1] if own else None,
        next=due,
        staged=staged,
        sinks=sinks,
    )


def _serving(sinks: Mapping[str, Seen[SinkState]]) -> int | None:
    """Return the one generation that all sinks serve; None if they differ or one is unknown."""
    numbers = {seen.value.generation if seen.value else None for seen in sinks.values()}
    return numbers.pop() if len(numbers) == 1 else None


def _least(sinks: Mapping[str, Seen[SinkState]], built: HistoryRow | None) -> str | None:
    built_lsn = None if built is None else built.lsn
    places = [(seen.value.lsn if seen.value else None) or built_lsn for seen in sinks.values()]
    parsed = [lsn for place in places if (lsn := _parsed(place)) is not None]
    return str(min(parsed)) if parsed and len(parsed) == len(places) else None


def _staged(own: Sequence[HistoryRow]) -> int | None:
    last = {row.generation: row.state for row in own}
    return max((number for number, state in last.items() if state == STAGED), default=None)


def _of_declaration(declared: DeclaredView) -> Iterator[LineStanding]:
    if declared.wrong:
        yield LineStanding(Severity.PROBLEM, declared.wrong, f"changelog test {declared.name}")


def _of_sinks(
    declared: DeclaredView, sinks: Mapping[str, Seen[SinkState]]
) -> Iterator[LineStanding]:
    for name, seen in sinks.items():
        if seen.value is None:
            yield LineStanding(Severity.UNKNOWN, f"{name}: {seen.why}", "changelog doctor")
    numbers = {name: seen.value.generation for name, seen in sinks.items() if seen.value}
    if len(set(numbers.values())) > 1:
        listed = ", ".join(f"{name} {number or 'none'}" for name, number in numbers.items())
        yield LineStanding(
            Severity.PROBLEM,
            f"its sinks serve different generations: {listed}",
            f"rebuild-view {declared.name}",
        )


def _of_history(
    declared: DeclaredView,
    sinks: Mapping[str, Seen[SinkState]],
    *,
    history: Seen[Sequence[HistoryRow]],
    own: Sequence[HistoryRow],
    built: HistoryRow | None,
    serving: int | None,
) -> Iterator[LineStanding]:
    again, last = f"rebuild-view {declared.name}", own[-1] if own else None
    if history.value is None:
        yield LineStanding(Severity.UNKNOWN, f"its history: {history.why}", "changelog doctor")
        return
    if last is not None and last.state in {REFUTED, FAILED}:
        outcome = "was refuted" if last.state == REFUTED else "failed"
        text = f"generation {last.generation} {outcome}: {last.note or f'{last.mismatches} rows'}"
        yield LineStanding(Severity.PROBLEM, text, f"{again} --history")
    if last is None or last.state == DROPPED:
        if not declared.wrong:
            yield LineStanding(Severity.NOTE, "was never built", again)
    elif (lost := _lost(own, sinks)) is not None:
        yield LineStanding(Severity.PROBLEM, f"nothing serves, though generation {lost} did", again)
    elif built is not None and built.verified is False:
        yield LineStanding(Severity.PROBLEM, f"generation {serving} is refuted and serves", again)
    elif built is not None and built.verified is None:
        yield LineStanding(Severity.NOTE, f"generation {serving} is not proved", again)
    elif serving is not None and built is None:
        text = f"generation {serving} serves, and the history does not know it"
        yield LineStanding(Severity.UNKNOWN, text, again)


def _lost(own: Sequence[HistoryRow], sinks: Mapping[str, Seen[SinkState]]) -> int | None:
    """Return the generation that was published, where all sinks say that they serve none."""
    if not sinks or any(seen.value is None or seen.value.generation for seen in sinks.values()):
        return None
    return next((row.generation for row in reversed(own) if row.state == PUBLISHED), None)


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
    at, newest = _parsed(lsn), _parsed(log.lsn)
    if at is None:
        return None
    if newest is not None and at >= newest:
        return log.lag_s
    if built is None or built.ts is None:
        return None
    return max((now - built.ts).total_seconds(), 0.0)


def _between(lsn: str | None, end: str | None) -> int | None:
    at, last = _parsed(lsn), _parsed(end)
    return None if at is None or last is None else max(last - at, 0)


def _parsed(text: str | None) -> Lsn | None:
    try:
        return None if text is None else Lsn.parse(text)
    except ConfigurationError:
        return None
