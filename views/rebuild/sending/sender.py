"""Bring one sink's generation forward, in a thread of its own, by what waits for it.

What comes while the sink is busy or away is merged, so that it gets all of it in one step once it
can. A sink that does not answer is asked again, at growing pauses. Where more waits than is kept,
it is left behind: it is asked only whether it answers again, and then has to be brought forward
from where it is by whoever has the stored states.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from changelog.contract.base.errors import ChangelogError, UnavailableError
from changelog.contract.base.position import Position
from views.rebuild.one_view.delta import KEY, MOST_KEYS, Delta
from views.rebuild.result.report import SinkReach
from views.sinks.base import ForwardSink
from views.sinks.kept import kept_of

log = logging.getLogger("changelog.views")

_LATE_S = 5.0
"""Rows that come so much later than they were proved are worth a line."""
_IDLE_S = 5.0
"""The connection to a sink is closed when nothing was sent for this long."""
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Between attempts while a sink does not answer; the last one again and again."""


class ElsewhereError(Exception):
    """Readers of the sink see another generation: somebody else has moved them."""


@dataclass(slots=True)
class _Behind:
    """The time and reason since which a sink lacks more rows than are kept for it."""

    since: float
    answers: bool = False


class Sender:
    """Brings a generation forward in one sink.

    `sink`: used by no other thread as long as this one runs. `confirm`: raises where the follower
    has lost its locks.
    """

    def __init__(  # noqa: PLR0917 - each says another thing of the sink
        self,
        view: str,
        name: str,
        sink: ForwardSink,
        generation: int,
        position: Position,
        confirm: Callable[[], None] = lambda: None,
    ) -> None:
        self.view, self.name = view, name
        self._confirm = confirm
        self._sink, self._generation = sink, generation
        self._kept = kept_of(sink)
        self._at = position
        self._rows: int | None = None
        self.took_s = 0.0
        """How long the last write took."""
        self._changed = threading.Condition()
        self._waiting: Waiting | None = None
        self._sending: Waiting | None = None
        self._is_under_way = False
        self._left: _Behind | None = None
        self._failures, self._not_before, self._why = 0, 0.0, ""
        self._failed: Exception | None = None
        self._is_paused = self._is_ended = False
        self._thread = threading.Thread(target=self._work, name=f"{view} {name}", daemon=True)
        self._thread.start()

    def send(self, waiting: Waiting) -> None:
        """Queue rows for the sink."""
        with self._changed:
            self._add(waiting)
            self._changed.notify_all()

    def reached(self, position: Position) -> None:
        """Note that all rows before this position have been queued."""
        with self._changed:
            if not self._lacks():
                self._at = max(self._at, position)

    @property
    def reach(self) -> SinkReach:
        """Return the sink's position, and by how much it is late."""
        with self._changed:
            since = self._since()
            behind_s = 0.0 if since is None else max(time.monotonic() - since, 0.001)
            return SinkReach(self._at, behind_s, self._left is not None, self._why)

    @property
    def rows(self) -> int | None:
        """Return the number of rows of the generation, or None before anything was sent."""
        return self._rows

    @property
    def failed(self) -> Exception | None:
        """Return the error that ended the sending, or None."""
        return self._failed

    @property
    def can_catch_up(self) -> bool:
        """Tell whether a sink that stopped keeping up answers again."""
        with self._changed:
            return self._left is not None and self._left.answers

    @property
    def is_busy(self) -> bool:
        """Tell whether the sink may be written to at any moment."""
        with self._changed:
            return self._failed is None and (self._is_under_way or self._lacks())

    def pause(self, until: float) -> bool:
        """Start no write before `resume`; tell whether the present write, if any, has ended.

        `until`: the latest moment to wait for it, by the monotonic clock.
        """
        with self._changed:
            self._is_paused = True
            return self._waited(lambda: not self._is_under_way, until)

    def resume(self) -> None:
        """Resume sending to this sink."""
        with self._changed:
            self._is_paused = False
            self._changed.notify_all()

    def wait(self, until: float) -> bool:
        """Wait until the sink lacks nothing or does not answer; tell whether it lacks nothing."""
        with self._changed:
            self._waited(lambda: not self._lacks() or self._is_stuck(), until)
            return not self._lacks()

    def end(self, until: float | None = None) -> bool:
        """Start no further write; tell whether the present write, if any, has ended.

        `until`: the latest moment to wait for it, by the monotonic clock; None waits without limit.
        """
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()
        self._thread.join(None if until is None else max(until - time.monotonic(), 0.0))
        return not self._thread.is_alive()

    def _work(self) -> None:
        with self._kept.keep():
            while self._is_next():
                self._work_once()  # sent rows have no name here while the next ones are waited for

    def _work_once(self) -> None:
        failed: Exception | None = None
        try:
            self._attempt(self._sending)
        except Exception as error:  # noqa: BLE001 - is raised where the rounds are made
            failed = error
        with self._changed:
            some, self._sending, self._is_under_way = self._sending, None, False
            if isinstance(failed, UnavailableError):
                self._put_off(some, failed)
            elif failed is not None:
                self._give_up(failed)
            else:
                self._note_sent(some)
            self._changed.notify_all()

    def _is_next(self) -> bool:
        """Take the next rows to send, or none to probe the sink; return False at the end."""
        idle_s: float | None = _IDLE_S
        with self._changed:
            while not self._is_ended:
                pause_s = self._not_before - time.monotonic()
                if not self._is_due():
                    if not self._changed.wait(idle_s):
                        self._kept.close_idle()
                        idle_s = None
                elif pause_s > 0:
                    self._changed.wait(pause_s)
                else:
                    self._sending, self._waiting = self._waiting, None
                    self._is_under_way = True
                    return True
            return False

    def _is_due(self) -> bool:
        if self._is_paused or self._failed is not None:
            return False
        return self._waiting is not None or (self._left is not None and not self._left.answers)

    def _attempt(self, some: Waiting | None) -> None:
        """Send or probe; after a failure on a kept connection, try once more on a new one."""
        try:
            self._send_or_probe(some)
        except ElsewhereError:
            raise
        except ChangelogError:
            if not self._kept.failed_when_kept():
                raise
            self._send_or_probe(some)

    def _send_or_probe(self, some: Waiting | None) -> None:
        if self._sink.published() != self._generation:
            raise ElsewhereError(f'somebody else has moved readers of view "{self.view}"')
        if some is not None:
            delta, began = some.delta, time.monotonic()
            self._confirm()
            self._rows = self._sink.apply(
                self._generation, delta.schema, delta.table, some.position
            )
            self.took_s = time.monotonic() - began

    def _put_off(self, some: Waiting | None, failed: UnavailableError) -> None:
        self._failures += 1
        self._why = str(failed.args[0] if failed.args else failed)
        pause_s = PAUSES_S[min(self._failures, len(PAUSES_S)) - 1]
        self._not_before = time.monotonic() + pause_s
        if self._failures == 1:
            text = "%s; sink %s of view %s is tried again, the others go on"
            log.warning(text, self._why, self.name, self.view)
        if some is not None:
            later, self._waiting = self._waiting, some
            if self._left is not None:
                self._waiting = None
            elif later is not None:
                self._add(later)

    def _give_up(self, failed: Exception) -> None:
        self._failed, self._why = failed, str(failed)
        if not isinstance(failed, ElsewhereError):
            log.warning("sink %s of view %s takes no more: %s", self.name, self.view, failed)

    def _note_sent(self, some: Waiting | None) -> None:
        if self._failures:
            log.info("sink %s of view %s answers again", self.name, self.view)
        self._failures, self._not_before, self._why = 0, 0.0, ""
        if self._left is not None:
            self._left.answers = True
        if some is None:
            return
        self._at = some.position
        if (late_s := time.monotonic() - some.since) > _LATE_S:
            text = "sink %s of view %s has what waited for it for %.0f s, and is at %s"
            log.info(text, self.name, self.view, late_s, self._at)

    def _add(self, later: Waiting) -> None:
        """Keep rows until the sink takes them, unless they are too many."""
        if self._left is not None or self._failed is not None:
            return
        why = "more has changed since than is kept for it"
        try:
            all_of_it = later if self._waiting is None else self._waiting.then(later)
        except UnlikeError as error:
            all_of_it, why = None, str(error)
        if all_of_it is None or all_of_it.is_too_much:
            since = self._since()
            self._left = _Behind(later.since if since is None else since)
            self._waiting = None
            text = "sink %s of view %s is left behind: %s; it catches up by a round of Spark's"
            log.warning(text, self.name, self.view, why)
        else:
            self._waiting = all_of_it

    def _lacks(self) -> bool:
        return self._since() is not None

    def _since(self) -> float | None:
        """Return when the oldest rows that the sink lacks were proved, None if it lacks none."""
        if self._sending is not None:
            return self._sending.since
        if self._left is not None:
            return self._left.since
        return None if self._waiting is None else self._waiting.since

    def _is_stuck(self) -> bool:
        """Tell whether waiting cannot help."""
        if self._left is not None:
            return self._left.answers
        return self._failures > 0 or self._failed is not None or self._is_ended

    def _waited(self, is_so: Callable[[], bool], until: float) -> bool:
        return self._changed.wait_for(is_so, max(until - time.monotonic(), 0.0))


# A delta says of some keys which row each has at a position, or that it has none. So two of them
# say together what each key has that one of them names: by the later one, where both do. Sent at
# once in the later one's position, that leaves a sink as the two of them would, one after the
# other; a reader sees a frontier less, never a mixed one. Each of them was proved, so what is
# merged is.
MOST_BYTES = 256 << 20
"""Of rows that wait for one sink."""


class UnlikeError(Exception):
    """Two deltas have columns that are not the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A merged delta waiting for a sink."""

    delta: Delta  # the row that each key has
    position: Position  # the first that they say nothing of
    since: float  # when the oldest of it was proved, by the monotonic clock in seconds

    @property
    def is_too_much(self) -> bool:
        """Tell whether more keys or bytes wait than are kept for a sink."""
        table = self.delta.table
        return bool(table.num_rows > MOST_KEYS or table.nbytes > MOST_BYTES)

    def then(self, later: Waiting) -> Waiting:
        """Return this delta merged with a later one.

        Raises UnlikeError: their columns differ.
        """
        table = merged(self.delta.table, later.delta.table)
        return replace(self, delta=replace(self.delta, table=table), position=later.position)


def merged(earlier: pa.Table, later: pa.Table) -> pa.Table:
    """Return a row for each key of two tables of deltas: the later one's, if it has one."""
    if set(earlier.column_names) != set(later.column_names):
        raise UnlikeError("two deltas of a view have different columns")
    if not (earlier.num_rows and later.num_rows):
        return later if later.num_rows else earlier
    again = pc.is_in(earlier[KEY], value_set=later[KEY].combine_chunks())
    # Whoever made the two tables, Spark or this process, may have said otherwise what can be null.
    schema = pa.schema([pa.field(field.name, field.type) for field in earlier.schema])
    try:
        parts = [
            earlier.filter(pc.invert(again)).cast(schema),
            later.select(schema.names).cast(schema),
        ]
        return pa.concat_tables(parts).combine_chunks()
    except pa.ArrowException as error:
        raise UnlikeError(str(error)) from error
