"""Wait until readers of a view see all that was committed before an LSN.

The sinks are asked, and no follower: each says with its rows to which position they are true, and
of one that takes only whole generations the history says it. A sink that stands before the LSN may
be true there all the same, since nobody makes a round while no record of the view's tables is
written. So the frontiers are compared too, by the facts that a follower goes by.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from changelog.config import BROKERS, SOURCE, Project, load_project
from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import (
    ChangelogError,
    ConfigurationError,
    SinkError,
    UnavailableError,
    ViewError,
)
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Frontier, FrontierRecord
from changelog.contract.log.topic import locks_topic
from changelog.contract.rows.relation import TableName
from changelog.kafka.clients import KeptKafka
from changelog.postgres.wal import end_of_wal
from changelog.runtime.setting import Given
from replay.base.clock import clock_ms
from replay.broker.topics import NewestFrontier, frontiers_back
from views.base.config import RebuildSettings
from views.base.sections import LockOn
from views.generations.history import GenerationHistory, HistoryRow, position_on_record
from views.generations.lock import is_attended
from views.generations.place import FOLDER, LockPlace
from views.generations.served import nothing_serves, served_of
from views.leases.leases import Leases, place_of
from views.leases.topic import LeaseTopic
from views.project.catalog import catalog_of
from views.project.spec import ViewSpec
from views.sinks.base import ForwardSink, Sink

log = logging.getLogger("changelog.views")

TIMEOUT_S = 30.0
_NAPS_S = (0.05, 0.1, 0.2, 0.4)
"""Between two looks; the last one again and again."""
_HISTORY_S = 1.0
_ALONE_S = 5.0
"""A view that nobody brings forward for so long is not waited for."""
_RETRY_S, _ANSWER_S = 1.0, 10.0


class NotReachedError(ChangelogError):
    """Readers of a view do not see an LSN in time, or no process refreshes the view."""


@dataclass(frozen=True, slots=True)
class Reached:
    """An LSN that readers of a view see.

    Attributes:
        view: the view's name.
        lsn: all that was committed before it is in what they read.
        sinks: the LSN that was known of each sink, by its kind. A lower one than `lsn` is of one
            that has the same rows at both, since nothing of its tables was written in between.
    """

    view: str
    lsn: Lsn
    sinks: Mapping[str, Lsn]

    def to_json(self) -> dict[str, object]:
        """Return the object of `changelog wait --json`."""
        sinks = {name: str(lsn) for name, lsn in self.sinks.items()}
        return {"view": self.view, "lsn": str(self.lsn), "sinks": sinks}


def awaited(
    place: Path,
    overrides: Given,
    view: str,
    text: str,
    *,
    sink: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Reached:
    """Wait for an LSN in a project's folder; see `wait_for`.

    `text`: the LSN as it was written, or `now`.
    """
    lsn = None if text == "now" else Lsn.given(text)
    needs = [BROKERS] if lsn is not None else [SOURCE, BROKERS]
    settings = RebuildSettings(project=load_project(place, overrides=overrides, needs=needs))
    return wait_for(settings, view, lsn, sink=sink, timeout_s=timeout_s)


def wait_for(
    settings: RebuildSettings,
    view: str,
    lsn: Lsn | None,
    *,
    sink: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Reached:
    """Wait until the sinks of the generation that serves show all that was committed before an LSN.

    `lsn`: None for the end of the source's WAL now. `sink`: the one that is read; all if None.

    Raises:
        NotReachedError: it takes longer, or nobody follows or builds the view.
        ViewError: there is no such view or sink, nothing serves yet, or the LSN is none of its log.
        ConfigurationError: the source, where it can be asked, ends before the LSN.
        ChangelogError: log, history or source cannot be asked.
    """
    project = settings.project
    spec = catalog_of(project).load(view)
    served = served_of(spec, project, None, retry_seconds=_RETRY_S, answer_seconds=_ANSWER_S)
    with closing(KeptKafka.of(project.kafka)) as kafka:
        frontiers = CaptureFrontiers(
            kafka, settings.frontier_topic, project.slot, own_tables(spec, settings)
        )
        wait = Wait(
            view,
            _chosen(view, served.sinks, sink),
            log=frontiers,
            history=GenerationHistory(settings.warehouse).rows,
            is_attended=_attendance(settings, view),
            source=_source_of(project),
        )
        return wait.until(lsn, timeout_s)


def captured_here(spec: ViewSpec, settings: RebuildSettings) -> list[TableName]:
    """Return the tables of a view that are of no log in the section [logs]."""
    foreign = {log.table for log in settings.logs}
    return [table for table in spec.tables if table not in foreign]


def own_tables(spec: ViewSpec, settings: RebuildSettings) -> list[TableName]:
    """Return the tables of a view that the project's own capture writes.

    Raises ViewError: there is none, so that no LSN says how new its rows are.
    """
    tables = captured_here(spec, settings)
    if not tables:
        raise ViewError(
            f'view "{spec.name}" reads only logs of other programs and captures ([logs]), of which '
            "an LSN of this source says nothing",
            hint="wait for a view of a table that this project captures",
        )
    return tables


def _chosen(view: str, sinks: Mapping[str, Sink], name: str | None) -> Mapping[str, Sink]:
    if name is None:
        return sinks
    if name not in sinks:
        raise ViewError(f'view "{view}" has no sink {name}', hint=f"it has {', '.join(sinks)}")
    return {name: sinks[name]}


def _source_of(project: Project) -> Callable[[], Lsn | None] | None:
    dsn = project.primary or project.postgres
    return (lambda: end_of_wal(dsn)) if dsn else None


def _attendance(settings: RebuildSettings, view: str) -> Callable[[], bool]:
    """Return a function that tells whether somebody follows or builds a view; it takes no lock."""
    project, topic = settings.project, locks_topic(settings.project.topic_prefix)
    root, leases = project.root, None
    if settings.rebuild.lock is not LockOn.LOCAL and LeaseTopic.is_there(project.kafka, topic):
        leases = Leases(
            lambda: LeaseTopic(project.kafka, topic),
            ttl_s=settings.rebuild.lock_seconds,
            place=place_of(root / FOLDER),
        )
    history = GenerationHistory(settings.warehouse)
    place = LockPlace(root, leases, lambda: history.known_identity() or "")
    return lambda: is_attended(place, view, clock_ms())


class FrontierSource(Protocol):
    """The frontiers of a log."""

    def newest(self) -> FrontierRecord:
        """Return the newest one."""
        ...

    def rests(self, position: Position, record: FrontierRecord) -> bool:
        """Tell whether the view's tables have the same rows at a position and at a frontier."""
        ...


class CaptureFrontiers:
    """The frontiers of a capture, compared by their effect on some tables."""

    def __init__(
        self, kafka: KafkaConnection, topic: str, slot: str, tables: Sequence[TableName]
    ) -> None:
        self._kafka, self._topic, self._slot = kafka, topic, slot
        self._tables = tables
        self._newest = NewestFrontier(kafka, topic, slot)
        self._known: dict[Position, bool] = {}

    def newest(self) -> FrontierRecord:
        """Return the newest frontier; raises as `read_frontier`."""
        return self._newest.read()

    def rests(self, position: Position, record: FrontierRecord) -> bool:
        """Tell whether the tables have the same rows at a position and at a later frontier.

        False too where no frontier so old is on its topic any more.
        """
        if position not in self._known:
            self._known[position] = self._rests(position, record)
        return self._known[position]

    def _rests(self, position: Position, record: FrontierRecord) -> bool:
        facts = self._facts(record.frontier)
        back = frontiers_back(self._kafka, self._topic, self._slot, before=record.offset + 1)
        for frontier in back:
            # Offsets only grow: tables that differ here differ from all that is older.
            if self._facts(frontier) != facts:
                return False
            if (frontier.epoch, frontier.lsn) <= position[:2]:
                return all(frontier.topic_of(table) is not None for table in self._tables)
        return False

    def _facts(self, frontier: Frontier) -> list[tuple[object, ...]]:
        return [frontier.facts_of(table) for table in self._tables]


@dataclass(slots=True)
class Wait:
    """One wait for one view.

    `sinks`: those that are waited for. `history`: gives the rows of a view and a generation.
    `is_attended`: tells whether somebody follows or builds the view. `source`: gives the end of the
    source's WAL, None of a standby; None where it cannot be asked.
    """

    view: str
    sinks: Mapping[str, Sink]
    log: FrontierSource
    history: Callable[..., Sequence[HistoryRow]]
    is_attended: Callable[[], bool]
    source: Callable[[], Lsn | None] | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _recorded: dict[int, tuple[float, Sequence[HistoryRow]]] = field(default_factory=dict)

    def until(self, lsn: Lsn | None, timeout_s: float) -> Reached:
        """Wait for an LSN; see `wait_for`."""
        begun = self.clock()
        # Before the source is asked: a frontier is never behind its end.
        record = self.log.newest()
        lsn = self._checked(lsn, record.frontier)
        alone_since: float | None = begun
        next_look, looks = begun, 0
        while True:
            trouble: UnavailableError | None = None
            late: dict[str, Position] = {}
            try:
                record = self.log.newest() if looks else record
                shown = {name: self._position(name, sink) for name, sink in self.sinks.items()}
                late = {n: p for n, p in shown.items() if not self._shows(p, lsn, record)}
                if not late:
                    reached = {name: position.commit_lsn for name, position in shown.items()}
                    return Reached(self.view, lsn, reached)
                if self.clock() >= next_look:
                    alone_since = None if self.is_attended() else alone_since or self.clock()
                    next_look = self.clock() + _ALONE_S / 2
            except UnavailableError as error:
                trouble = error
            now = self.clock()
            waited_s = now - begun
            is_alone = alone_since is not None and now - alone_since >= min(_ALONE_S, timeout_s)
            if trouble is None and is_alone:
                raise self._alone(lsn, record, late)
            if waited_s >= timeout_s:
                raise self._too_late(lsn, timeout_s, record, late, trouble)
            nap_s = _NAPS_S[min(looks, len(_NAPS_S) - 1)]
            self.sleep(min(nap_s, timeout_s - waited_s))
            looks += 1

    def _checked(self, lsn: Lsn | None, frontier: Frontier) -> Lsn:
        """Return the LSN to wait for, checked against the source's WAL.

        A source is asked only for what the log does not have yet.
        """
        if lsn is not None and lsn <= frontier.lsn:
            return lsn
        if self.source is None:
            if lsn is None:
                raise ConfigurationError(
                    "the end of the source's WAL is not known",
                    hint="set postgres.dsn in changelog.toml, or give the LSN",
                )
            return lsn
        try:
            end = self.source()
        except UnavailableError as error:
            if lsn is None:
                raise
            log.warning("whether LSN %s lies ahead of the source is not known: %s", lsn, error)
            return lsn
        if end is None:
            if lsn is None:
                raise ConfigurationError(
                    "the source is a standby, which does not know what its primary has committed",
                    hint="set postgres.primary in changelog.toml, or take the LSN at the primary",
                )
            return lsn
        if end < frontier.lsn:
            raise ConfigurationError(
                f"the source ends at {end}, before the log, which is at {frontier.lsn}: it is "
                "another server, or was put back",
                hint="`changelog status` says what capture makes of it",
            )
        if lsn is not None and lsn > end:
            raise ConfigurationError(
                f"LSN {lsn} lies ahead of the source, which ends at {end}: it is of another "
                "server, or of one that was failed over or put back since",
                hint="take it after the commit, at the source: SELECT pg_current_wal_insert_lsn()",
            )
        return end if lsn is None else lsn

    def _shows(self, position: Position, lsn: Lsn, record: FrontierRecord) -> bool:
        """Tell whether rows at a position have all commits before an LSN of the newest epoch.

        LSNs of another epoch say nothing: they may be those of another server.
        """
        if position.epoch != record.frontier.epoch:
            return False
        if position.commit_lsn >= lsn:
            return True
        return record.frontier.lsn >= lsn and self.log.rests(position, record)

    def _position(self, name: str, sink: Sink) -> Position:
        """Return the position to which the rows are true that readers of a sink see.

        Raises ViewError: nothing serves there, or it is not on record.
        """
        while True:
            number = sink.published()
            if number is None:
                raise nothing_serves(self.view, name)
            try:
                position = sink.position(number) if isinstance(sink, ForwardSink) else None
            except SinkError:
                if sink.published() == number:
                    raise
                continue  # readers were moved meanwhile, and that generation is removed
            rows = self._rows_of(number)
            written = position_on_record(rows, number, written=True)
            # What the history has, every sink has had.
            if position is not None and written is not None and position < written:
                return position  # the sink was put back since: a dump, a snapshot of its server
            recorded = position_on_record(rows, number)
            positions = [one for one in (position, recorded) if one is not None]
            if positions:
                return max(positions)
            raise ViewError(
                f'the history of view "{self.view}" does not say what generation {number} in '
                f"{name} was made of",
                hint=f"rebuild-view {self.view}",
            )

    def _rows_of(self, number: int) -> Sequence[HistoryRow]:
        """Return the history of a generation; read once a second."""
        recorded = self._recorded.get(number)
        if recorded is None or self.clock() - recorded[0] >= _HISTORY_S:
            rows = self.history([self.view], generation=number)
            recorded = self._recorded[number] = self.clock(), rows
        return recorded[1]

    def _alone(
        self, lsn: Lsn, record: FrontierRecord, late: Mapping[str, Position]
    ) -> NotReachedError:
        return NotReachedError(
            f'view "{self.view}" does not show {lsn}, and nobody follows or rebuilds it: '
            f"{_told(late, record.frontier)}",
            hint=f"rebuild-view {self.view} --follow keeps it fresh, rebuild-view {self.view} "
            "builds it once",
        )

    def _too_late(
        self,
        lsn: Lsn,
        timeout_s: float,
        record: FrontierRecord,
        late: Mapping[str, Position],
        trouble: UnavailableError | None,
    ) -> NotReachedError:
        head = f'view "{self.view}" does not show {lsn} after {timeout_s:g} s'
        if trouble is not None:
            return NotReachedError(f"{head}: {trouble.args[0]}", hint=trouble.hint)
        frontier = record.frontier
        is_log = frontier.lsn < lsn
        return NotReachedError(
            f"{head}: {_told(late, frontier)}",
            hint="`changelog status` says whether capture runs, and how far behind it is"
            if is_log
            else "its follower is behind: a longer --timeout waits for it",
        )


def _told(late: Mapping[str, Position], frontier: Frontier) -> str:
    """Return the LSNs of sinks and of the log; of several epochs they cannot be compared."""
    differ = any(position.epoch != frontier.epoch for position in late.values())
    places = [(name, position.commit_lsn, position.epoch) for name, position in late.items()]
    return ", ".join(
        f"{name} is at {lsn}{f' of epoch {epoch}' if differ else ''}"
        for name, lsn, epoch in [*places, ("the log", frontier.lsn, frontier.epoch)]
    )
