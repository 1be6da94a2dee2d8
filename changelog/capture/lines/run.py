"""Snapshot, then stream, as lines; what PostgreSQL may forget was written before.

With a file: between two transactions, once a second while changes come and once a minute at rest,
a line `at` says up to where the file is whole; it is on the disk before PostgreSQL hears of it. So
the slot never stands behind the last such line, and a start goes on there, leaving out what the
file has already. To standard output the same lines go, and count as taken when they were written.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Protocol

from changelog.capture.lines.file import FileState
from changelog.capture.lines.line import (
    ChangePlace,
    FileBegin,
    FlatEncoder,
    LineEncoder,
    LineWriter,
    at,
    copied,
)
from changelog.capture.lines.source import LineSource, uses_given_slot
from changelog.capture.start.decide import first_place
from changelog.capture.start.rights import Agreed, check_agreed, nobody_agrees
from changelog.capture.state.patience import FIRST_WAIT_S, LONGEST_WAIT_S, Patience, sleep
from changelog.capture.state.progress import Progress
from changelog.config import Project
from changelog.contract.base.errors import (
    ConfigurationError,
    SlotError,
    UnavailableError,
)
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.names import check_length
from changelog.contract.base.secret import redacted
from changelog.contract.log.form import Envelope
from changelog.contract.rows.relation import Relation
from changelog.runtime.terminal import ClosedError
from changelog.source.connect.connect import connect
from changelog.source.connect.readiness import check_room
from changelog.source.connect.retention import SlotStatus
from changelog.source.connect.system import current_lsn
from changelog.source.stream.assemble import Assembler, Began, Changed, Committed, Emitted, Event
from changelog.source.stream.message import OWN_PREFIX, emit
from changelog.source.stream.pgoutput import decode
from changelog.source.stream.slot import ExportedSnapshot, check_slot
from changelog.source.stream.stream import ReplicationStream

log = logging.getLogger("changelog.capture")

POLL_S = 0.2
AT_S, REST_S = 1.0, 60.0
BATCH = 1 << 18
"""Bytes of lines that are put together."""

NAMES = "_lines"
"""Behind the slot's name: a log of the same project has a slot and a publication of its own."""


def own_name(slot: str, *, temporary: bool) -> str:
    """Return the name of the slot that lines are made by.

    Raises ConfigurationError: it, or that of the slot for its snapshot, would be too long.
    """
    lasting, copies = slot + NAMES, f"{slot}{NAMES}_{os.getpid()}"
    check_length(copies, "--print and --into add to the name of the slot (--slot)")
    return copies if temporary else lasting


class LineTarget(Protocol):
    """Receiver of the lines."""

    def write(self, raw: bytes) -> None:
        """Write lines."""

    def settle(self) -> None:
        """Return once the written lines are durable."""

    def check(self) -> None:
        """Raise ClosedError where nobody takes any more."""


@dataclass(slots=True)
class LineReport:
    """Counts of the lines written: rows of the snapshot, and changes."""

    rows: int = 0
    changes: int = 0

    def to_json(self) -> dict[str, int]:
        """Return it as one JSON object."""
        return {"rows": self.rows, "changes": self.changes}

    def summary(self) -> str:
        """Return it as a line for people."""
        return f"{self.rows:,} rows of the snapshot, {self.changes:,} changes"


class LineRun:
    """Writes lines until it is asked to stop, has reached an LSN, or nobody reads any more."""

    def __init__(
        self,
        settings: Project,
        target: LineTarget,
        look: Callable[[], FileState] | None,
        *,
        temporary: bool,
        stop: Callable[[], bool],
        clear: Callable[[], None] = lambda: None,
        agreed: Agreed = nobody_agrees,
    ) -> None:
        """Prepare a run.

        `look` returns what stands in the target from earlier runs, None where that cannot be known;
        `clear` takes out the rows of a snapshot that was cut off. A `temporary` slot goes with the
        connection. `stop` is asked often.
        """
        self._settings, self._target, self._read_state = settings, target, look
        self._temporary, self._stop, self._clear = temporary, stop, clear
        self._agreed = agreed
        self._flat = settings.capture.envelope is Envelope.FLAT
        if uses_given_slot(settings.capture):
            self._slot = settings.slot
        else:
            self._slot = own_name(settings.slot, temporary=temporary)
        self._last = ChangePlace(Lsn(0), -1)
        self._begun = False
        self.report = LineReport()

    def run(self, until: Lsn | None = None) -> None:
        """Write; returns after a clean stop, past `until`, or when the far end of a pipe is gone.

        Raises ChangelogError: what cannot be waited out; see each family.
        """
        patience = Patience(self._settings.capture.wait_s, self._stop)
        wait_s = FIRST_WAIT_S
        while not self._stop():
            try:
                with ExitStack() as stack:
                    self._attempt(until, stack)
            except ClosedError:
                return
            except UnavailableError as error:
                if self._stop():
                    log.warning("%s", redacted(str(error)))
                    return
                if not self._begun:
                    patience.wait(error)
                    continue
                if self._temporary:
                    raise  # the slot went with the connection
                log.warning("%s; trying again in %.1f s", redacted(str(error)), wait_s)
                sleep(wait_s, self._stop)
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)
            else:
                return

    def _attempt(self, until: Lsn | None, stack: ExitStack) -> None:
        connection = stack.enter_context(closing(connect(self._settings.postgres)))
        source = LineSource.open(self._settings, connection, self._slot, gives_full=not self._begun)
        file_state, status = self._looked_at(source)
        check_agreed(connection, source.altered, self._agreed)
        with _taken_back(source):
            source.make()
            start, snapshot = self._begin(source, file_state, status, stack)
        if self._temporary and source.has_made_publication:
            stack.callback(source.unpublish)
        self._begun = True
        stream = stack.enter_context(
            ReplicationStream.open(
                self._settings.postgres,
                slot=self._slot if snapshot is None else snapshot.slot,
                publication=source.publication,
                start_lsn=start,
                status_interval=self._settings.capture.status_interval_ms / 1000,
                connection=None if snapshot is None else snapshot.connection,
            )
        )
        log.info("streaming from %s", start, extra={"lsn": str(start)})
        lines = _AttemptLines(
            source,
            stream,
            start,
            self._target,
            report=self.report,
            last=self._last,
            flat=self._flat,
        )
        lines.run(until, self._stop)

    def _looked_at(self, source: LineSource) -> tuple[FileState | None, SlotStatus | None]:
        """Return the state of the file and of the slot, after all checks; make nothing.

        Raises ChangelogError: they do not tell one story, or the slot cannot be read.
        """
        status = None if self._temporary else source.standing()
        file_state = self._read_state() if self._read_state is not None else None
        if file_state is not None and not self._is_given(file_state):
            _check(file_state, source, exists=status is not None)
            _check_start(file_state, self._settings.capture.first_lsn)
        if status is None:
            if not self._is_given(file_state):
                check_room(source.connection, slots=1 if self._temporary else 2)
            return file_state, status
        check_slot(status)
        confirmed = status.confirmed_flush_lsn or Lsn(0)
        begun = file_state.begin if file_state is not None else None
        if (
            file_state is not None
            and begun is not None
            and confirmed > max(file_state.at, begun.lsn)
        ):
            raise SlotError(
                f'the slot "{self._slot}" has been moved to {confirmed}, past the end of the '
                f"file at {file_state.at}: what lies between is lost",
                hint="drop the slot and begin with another file",
            )
        return file_state, status

    def _is_given(self, file_state: FileState | None) -> bool:
        """Tell whether a slot that others have made is begun with."""
        return uses_given_slot(self._settings.capture) and (
            file_state is None or file_state.begin is None
        )

    def _begin(
        self,
        source: LineSource,
        file_state: FileState | None,
        status: SlotStatus | None,
        stack: ExitStack,
    ) -> tuple[Lsn, ExportedSnapshot | None]:
        """Return the LSN at which the stream begins, and its temporary slot."""
        if self._is_given(file_state):
            return self._begin_on_given_slot(source, status), None
        if status is None:
            return self._fresh(source, stack)
        confirmed = status.confirmed_flush_lsn or Lsn(0)
        if file_state is not None and file_state.begin is not None:
            if not file_state.is_copied:
                self._target.write(copied(file_state.begin.lsn))
                self._target.settle()
            self._go_on_behind(file_state.last)
            for table in sorted(source.relations):
                if str(table) not in file_state.begin.tables:
                    name = table.said
                    log.warning("table %s: the file has no snapshot of it, changes alone", name)
        return confirmed, None

    def _begin_on_given_slot(self, source: LineSource, status: SlotStatus | None) -> Lsn:
        """Return the start of the stream of a slot that others made; no row is copied."""
        if status is None:
            raise SlotError(
                f'there is no slot "{self._slot}", and none may be made (--no-create-slot or '
                "--start-lsn)",
                hint="make the publication, and then the slot: SELECT "
                f"pg_create_logical_replication_slot('{self._slot}', 'pgoutput')",
            )
        check_slot(status)
        # After an outage it goes on where the slot stands now.
        first_lsn = None if self._begun else self._settings.capture.first_lsn
        stands = status.confirmed_flush_lsn or Lsn(0)
        start = first_place(self._slot, stands, first_lsn, current_lsn(source.connection))
        log.info('slot "%s" was made by others: changes alone, no rows of a snapshot', self._slot)
        if self._read_state is not None:
            self._clear()
            begin = FileBegin(self._slot, source.system_id, start, ())
            self._target.write(begin.line() + copied(start))
            self._target.settle()
        return start

    def _go_on_behind(self, last: ChangePlace) -> None:
        self._last = max(self._last, last)

    def _fresh(self, source: LineSource, stack: ExitStack) -> tuple[Lsn, ExportedSnapshot | None]:
        self._clear()
        name = self._slot if self._temporary else f"{self._slot}_{os.getpid()}"
        snapshot = source.snapshot(name, self._stop)
        stack.callback(snapshot.close)
        start = snapshot.consistent_point
        lines = _LineBatch(self._target)
        tables = [] if self._settings.capture.skip_snapshot else map(str, source.relations)
        self._mark(lines, FileBegin(self._slot, source.system_id, start, tuple(tables)).line())
        if not self._settings.capture.skip_snapshot:
            self._copy(source, snapshot, lines)
        lines.flush()
        self._target.settle()
        if not self._temporary:
            source.keep(snapshot)
            snapshot.close()
        self._mark(lines, copied(start))
        lines.flush()
        self._target.settle()
        return start, snapshot if self._temporary else None

    def _mark(self, lines: _LineBatch, mark: bytes) -> None:
        if not self._flat:
            lines.add(mark)

    def _copy(self, source: LineSource, snapshot: ExportedSnapshot, lines: _LineBatch) -> None:
        encoder = FlatEncoder if self._flat else LineEncoder
        encoders = {
            name: encoder(source.rules.shape(relation))
            for name, relation in source.relations.items()
        }
        ts_us, start = time.time_ns() // 1000, snapshot.consistent_point

        def take(relation: Relation, row: tuple[bytes | None, ...]) -> None:
            key = tuple(row[index] or b"" for index in relation.key_indexes)
            lines.add(encoders[relation.name].read(row, key, start, ts_us))
            self.report.rows += 1

        rows = source.copy(snapshot.snapshot_name, take)
        log.info("snapshot of %d tables: %d rows", len(source.relations), rows)


def _check(file_state: FileState, source: LineSource, *, exists: bool) -> None:
    """Check that file and slot tell one story.

    Raises SlotError: they do not.
    """
    begin = file_state.begin
    if begin is None:
        if exists:
            raise SlotError(
                f'the slot "{source.slot}" is there, and the file is empty: what the slot has '
                "sent so far is not in it",
                hint=f"SELECT pg_drop_replication_slot('{source.slot}') begins anew",
            )
        return
    if begin.slot != source.slot or begin.system_id != source.system_id:
        raise SlotError(
            f'the file was begun on the slot "{begin.slot}" of the server {begin.system_id}, this '
            f'is "{source.slot}" of {source.system_id}',
            hint="name another file",
        )
    if file_state.is_copied and not exists:
        raise SlotError(
            f'the slot "{source.slot}" is gone: what came since the file ended is lost',
            hint="name another file: it begins with a snapshot",
        )


def _check_start(file_state: FileState, first_lsn: Lsn | None) -> None:
    """Check that the file began where it is asked for: the same command may be run again.

    Raises ConfigurationError: it began elsewhere.
    """
    if file_state.begin is not None and first_lsn not in {None, file_state.begin.lsn}:
        raise ConfigurationError(
            f"the file began at {file_state.begin.lsn}, not at --start-lsn {first_lsn}",
            hint="leave --start-lsn out to go on, or name another file",
        )


@contextmanager
def _taken_back(source: LineSource) -> Iterator[None]:
    """Undo the changes at the source if the start is refused after all."""
    try:
        yield
    except BaseException:
        source.take_back()
        raise


class _LineBatch:
    """Collects lines, and writes them together."""

    def __init__(self, target: LineTarget) -> None:
        self._target = target
        self._lines: list[bytes] = []
        self._size = 0

    def add(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)
        if self._size >= BATCH:
            self.flush()

    def flush(self) -> None:
        if self._lines:
            raw = b"".join(self._lines)
            self._lines, self._size = [], 0
            self._target.write(raw)


class _AttemptLines:
    """The stream of one attempt."""

    def __init__(
        self,
        source: LineSource,
        stream: ReplicationStream,
        start: Lsn,
        target: LineTarget,
        *,
        report: LineReport,
        last: ChangePlace,
        flat: bool,
    ) -> None:
        self._source, self._stream, self._target = source, stream, target
        self._report, self._last, self._flat = report, last, flat
        self._progress = Progress(start)
        self._assembler = Assembler(source.catalogue.resolver(source.relations.values()))
        self._batch = _LineBatch(target)
        self._encoders: dict[int, tuple[Relation, LineWriter]] = {}
        self._began = Began(Lsn(0), 0, 0)
        self._at, self._at_due = start, 0.0
        self._has_news = False

    def run(self, until: Lsn | None, stop: Callable[[], bool]) -> None:
        if until is not None:
            self._nudge()
        asked_s = time.monotonic()
        while not stop():
            payloads = self._stream.poll(POLL_S)
            for place in range(len(payloads)):
                for event in self._assembler.add(decode(payloads[place])):
                    self._take(event)
            self._batch.flush()
            self._target.check()
            if not len(payloads):
                self._progress.idle_until(self._stream.server_wal_end)
            self._settle()
            if until is not None:
                if self._progress.reached >= until and self._progress.between_transactions:
                    break
                if time.monotonic() > asked_s + 2 * AT_S:
                    asked_s = time.monotonic()
                    self._nudge()
        self._batch.flush()
        self._settle(now=True)

    def _nudge(self) -> None:
        emit(self._source.connection, OWN_PREFIX, b"", transactional=True)

    def _take(self, event: Event) -> None:
        match event:
            case Changed(change=change, sequence=sequence):
                place = ChangePlace(self._began.commit_lsn, sequence)
                if place <= self._last:
                    return
                line = self._encoder(change.relation).change(
                    change, place, self._began.ts_us, self._began.xid
                )
                self._batch.add(line)
                self._report.changes += 1
                self._has_news = True
            case Began():
                self._began = event
                self._progress.began()
            case Committed(end_lsn=end_lsn):
                self._progress.committed(end_lsn)
            case Emitted(transactional=inside, lsn=lsn):
                if not inside:
                    self._progress.idle_until(lsn)

    def _encoder(self, relation: Relation) -> LineWriter:
        entry = self._encoders.get(relation.oid)
        if entry is None or entry[0] is not relation:
            encoder = FlatEncoder if self._flat else LineEncoder
            entry = relation, encoder(self._source.rules.shape(relation))
            self._encoders[relation.oid] = entry
        return entry[1]

    def _settle(self, *, now: bool = False) -> None:
        """Acknowledge the WAL up to which the lines are durable."""
        lsn = self._progress.frontier_due()
        if lsn is None or lsn <= self._at:
            return
        moment = time.monotonic()
        rest_s = 0.0 if now or self._has_news else REST_S
        if not now and moment < self._at_due + rest_s:
            return
        self._source.check_publication()
        if not self._flat:
            self._target.write(at(lsn))
        self._target.settle()
        self._progress.frontier_written(lsn)
        self._stream.acknowledge(self._progress.settle())
        self._at, self._at_due, self._has_news = lsn, moment + AT_S, False
