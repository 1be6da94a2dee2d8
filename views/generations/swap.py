"""Move readers: every sink of every view of a run at once, or none.

There is no transaction across a Delta table, an index and a cache. What there is: all sinks hold
the whole new generation before the first one is moved, each moves in one atomic step of its own,
the steps follow each other within milliseconds, and if one fails the others are moved back. The
tables of all views in PostgreSQL move in one transaction, which takes its locks and does its work
before any other sink moves: nobody waits for a lock while the sinks differ. The next run finishes
what a kill between two steps left (`settle`), also of other views that were to move together with
this one, as the history says. For how long the sinks differed is measured.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from changelog.contract.base.errors import ChangelogError
from changelog.runtime.progress.steps import UNSEEN, Steps
from views.base.failure import explained
from views.generations.history import (
    PUBLISHED,
    RETIRED,
    SEALED,
    STAGED,
    GenerationHistory,
    HistoryRow,
    states_of,
)
from views.generations.reservation import NOBODY, Others
from views.generations.served import Peers, Served
from views.generations.staging import take_away
from views.generations.succession import (
    SinkGenerations,
    leftovers,
    line_of,
    staged,
    to_retire,
    unfinished_swap,
)
from views.sinks.base import (
    BusyError,
    Database,
    Sink,
    TransactionalSink,
    UnavailableSinkError,
)

if TYPE_CHECKING:
    from changelog.postgres.connection import Connection

S = TypeVar("S")

log = logging.getLogger("changelog.views")


class HalfPublishedError(ChangelogError):
    """A swap broke off and not every sink could be moved back.

    What serves is whole and was verified; only some sinks serve it. The generation stays in all
    sinks, and the next run finishes the swap.
    """

    def __init__(self, reason: ChangelogError, stuck: Sequence[str]) -> None:
        super().__init__(
            f"{reason.args[0]}; meanwhile {'; '.join(stuck)}",
            hint="once the servers answer, run the same command again: it finishes this",
        )


class LostInSwapError(HalfPublishedError):
    """The lock was, or may be, lost during a swap; the next run finishes or undoes the swap."""

    exit_code = 5


def swap(
    targets: Sequence[tuple[Served, int]],
    *,
    confirm: Callable[[], None] = lambda: None,
    steps: Steps = UNSEEN,
) -> float:
    """Publish a generation of each view in all its sinks; move all back if one fails.

    `targets`: the sinks of each view, and the generation. `confirm`: raises if this process has
    lost its locks; called before each step and after the last. Without locks nothing is moved back,
    since another run is at work. `steps`: counts the sinks that are asked which generation they
    serve, and the sinks that are moved.

    Returns:
        The seconds from the moment the first sink had moved until the last one had: in between
        they served different generations.

    Raises:
        ChangelogError: a sink did not move; all sinks serve their previous generation, or the
            message names those that do not.
        LockedError: the lock is lost and no sink has moved.
        UnavailableError: whether it is lost is not known, and no sink has moved.
        LostInSwapError: either came after some sink had moved.
    """
    steps.more(2 * sum(len(served.sinks) for served, _ in targets))
    moves = [
        _Move(served.view, name, served.sinks[name], generation, holding.published)
        for served, generation in targets
        for name, holding in served.held_without_listing(steps).items()
    ]
    running = _Swap(moves, confirm, steps)
    if not running.transactional_moves:
        return running.run(None)
    running.prepare()
    # All views of a project have the same one.
    database = running.transactional_moves[0].sink.database
    return database.patiently(lambda: running.run(database))


@dataclass(frozen=True, slots=True)
class _Move(Generic[S]):
    """A sink whose readers are to be moved, and the generation that they see until then."""

    view: str
    name: str
    sink: S
    generation: int
    previous_generation: int | None


class _Swap:
    """Moves the readers of all sinks: PostgreSQL commits last, after all other sinks have moved.

    Its work comes first, since it may have to wait for locks of other sessions. Moves that lock
    readers out are rehearsed under a savepoint, rolled back, and repeated last.
    """

    def __init__(
        self, moves: Sequence[_Move[Sink]], confirm: Callable[[], None], steps: Steps
    ) -> None:
        self._moves, self._confirm, self._steps = moves, confirm, steps
        self.transactional_moves = [
            cast("_Move[TransactionalSink]", move)
            for move in moves
            if isinstance(move.sink, TransactionalSink)
        ]
        self._current: _Move[Any] | None = None
        self._moved: list[_Move[Any]] = []
        self._moved_at: list[float] = []
        self._steps_reported = 0

    def prepare(self) -> None:
        """Prepare each transactional move outside of the transaction, which holds locks."""
        for move in self.transactional_moves:
            try:
                move.sink.prepare(move.generation)
            except Exception as error:
                raise self._explained(error, move) from error

    def run(self, database: Database | None) -> float:
        """Move all readers once; returns the seconds during which sinks differed.

        Raises BusyError: somebody holds a lock; nothing has moved.
        """
        self._moved, self._moved_at = [], []
        try:
            if database is None:
                self._move_others()
            else:
                with database.connection() as connection:
                    self._move_in_transaction(connection)
                self._end(self.transactional_moves)
        except LostInSwapError:
            raise
        except Exception as error:
            reason = self._explained(error, self._current)
            if stuck := _move_back(self._moved):
                raise HalfPublishedError(reason, stuck) from error
            if isinstance(error, BusyError):
                raise
            raise reason from error
        self._check_locks()
        return round(self._moved_at[-1] - self._moved_at[0], 6) if self._moved_at else 0.0

    def _move_in_transaction(self, connection: Connection) -> None:
        locking_moves = [move for move in self.transactional_moves if move.sink.locks_readers_out]
        with connection, connection.cursor() as cursor:
            # Foreign keys between the views' tables hold once all of them have their rows.
            cursor.execute("SET CONSTRAINTS ALL DEFERRED")
            for move in self.transactional_moves:
                if move not in locking_moves:
                    self._move(move, connection)
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            # Rehearsed, so that an error surfaces before another sink moves; rolled back, so that
            # readers are not locked out while the other sinks move.
            if len(self._moves) > len(locking_moves):
                cursor.execute("SAVEPOINT tried")
                for move in locking_moves:
                    self._move(move, connection)
                cursor.execute("ROLLBACK TO SAVEPOINT tried")
            self._move_others()
            for move in locking_moves:
                self._move(move, connection)
            self._check_locks()
            # After a commit that failed, `_move_back` asks each sink what it serves.
            self._moved += self.transactional_moves

    def _move(self, move: _Move[TransactionalSink], connection: Connection) -> None:
        self._begin(move)
        move.sink.move(connection, move.generation)

    def _move_others(self) -> None:
        for move in self._moves:
            if isinstance(move.sink, TransactionalSink):
                continue
            self._check_locks()
            self._begin(move)
            self._moved.append(move)
            move.sink.publish(move.generation)
            self._end([move])

    def _begin(self, move: _Move[Any]) -> None:
        self._current = move
        self._steps.begin(f"{move.view} {move.generation} in {move.name}")

    def _end(self, moves: Sequence[_Move[Any]]) -> None:
        self._moved_at += [time.monotonic()] * len(moves)
        while self._steps_reported < len(self._moved_at):  # another attempt counts no step twice
            self._steps_reported += 1
            self._steps.done()

    @staticmethod
    def _explained(error: Exception, move: _Move[Any] | None) -> ChangelogError:
        if isinstance(error, BusyError):
            return UnavailableSinkError(str(error))
        place = "" if move is None else f' view "{move.view}" in {move.name}'
        return explained(error, f"publishing{place}")

    def _check_locks(self) -> None:
        """Check that this process still has its locks."""
        try:
            self._confirm()
        except ChangelogError as error:  # lost, or the brokers do not answer and nobody knows
            if not self._moved:
                raise
            moved = [
                f'view "{move.view}" in {move.name} was moved to generation {move.generation}'
                for move in self._moved
            ]
            raise LostInSwapError(error, moved) from error


def _move_back(moved: Sequence[_Move[Any]]) -> list[str]:
    """Move readers back in reverse order; returns a sentence on each sink that did not."""
    return [stuck for move in reversed(moved) if (stuck := _move_one_back(move))]


def _move_one_back(move: _Move[Any]) -> str:
    """Move the readers of a sink back; returns the generation that they see if that fails."""
    try:
        if move.sink.published() == move.previous_generation:
            return ""
        if move.previous_generation is not None:
            move.sink.publish(move.previous_generation)
            return ""
    except Exception as error:  # the other sinks are moved back all the same
        reason = explained(error, f"moving back to generation {move.previous_generation}")
        log.warning('view "%s" in %s does not move back: %s', move.view, move.name, reason)
        log.debug("it does not move back", exc_info=error)
        return f'view "{move.view}" in {move.name} may serve generation {move.generation}'
    # A first generation has nothing to move back to: sinks cannot serve nothing again.
    return f'view "{move.view}" in {move.name} serves generation {move.generation}'


def settle(
    served: Served,
    history: GenerationHistory,
    others: Others = NOBODY,
    steps: Steps = UNSEEN,
    peers: Peers = lambda _: None,
) -> int | None:
    """Finish a killed run's publication of a view, and remove leftovers of dead runs.

    A staged generation stays, but for one that a newer one was to replace. Only for the holder of
    the view's lock.

    `served`: the sinks of the view. `history`: the recorded states of its generations. `others`:
    the generations that other processes build, or have left behind. `steps`: counts the sinks that
    are asked, which its caller has announced, and the removals. `peers`: gives the sinks of another
    view, which tell whether a view that was to move together with this one has moved.

    Returns:
        The generation whose publication was finished, or None.
    """
    states = history.states(served.view)
    holdings = served.held(steps)
    waiting = [
        number
        for number, state in states.items()
        if state in (SEALED, STAGED) and all(number in one.generations for one in holdings.values())
    ]
    moved = [number for number in waiting if _has_moved(served.view, number, history, peers)]
    generation = unfinished_swap(list(holdings.values()), states, moved)
    if generation is not None:
        _finish_swap(served, generation, history, steps)
        states[generation] = PUBLISHED
        holdings = served.held()
    _remove_leftovers(served, holdings, states, others, steps)
    others.mark_cleared()
    take_away(served, history, staged(states)[:-1], note="replaced by a newer one", steps=steps)
    return generation


def _finish_swap(served: Served, generation: int, history: GenerationHistory, steps: Steps) -> None:
    """Publish the generation whose publication was killed, and record it."""
    swap([(served, generation)], steps=steps)
    *_, sealed = history.rows([served.view], generation=generation)
    note = "recorded by a later run: its own was killed"
    history.append([sealed.again(state=PUBLISHED, note=note)])
    log.warning('view "%s": generation %d of a killed run is published', served.view, generation)


def _remove_leftovers(
    served: Served,
    holdings: Mapping[str, SinkGenerations],
    states: Mapping[int, str],
    others: Others,
    steps: Steps,
) -> None:
    """Remove the unfinished generations of dead runs from each sink."""
    for name, sink in served.sinks.items():
        unknown = (others.dead & holdings[name].generations) - {*states, holdings[name].published}
        unfinished = sorted({*leftovers(holdings[name], states), *unknown} - others.spared)
        steps.more(len(unfinished))
        for generation in unfinished:
            log.info(
                'view "%s" in %s: removing unfinished generation %d', served.view, name, generation
            )
            steps.begin(f"{served.view} {generation} in {name}")
            sink.discard(generation)
            steps.done()


def _has_moved(view: str, generation: int, history: GenerationHistory, peers: Peers) -> bool:
    """Tell whether a view has moved that was to move together with another view's generation."""
    *_, last = history.rows([view], generation=generation)
    companions = {other: number for other, number in last.together.items() if other != view}
    for other, number in companions.items():
        # A companion that was published alone since then does not count.
        rows = [
            (row.state, row.together.get(view) == generation)
            for row in history.rows([other], generation=number)
        ]
        if (PUBLISHED, True) in rows:
            return True
        if rows and rows[-1][1] and (peer := peers(other)) is not None:
            holdings = peer.held_without_listing().values()
            if any(one.published == number for one in holdings):
                return True
    return False


def retire(
    served: Served,
    history: GenerationHistory,
    *,
    previous: int | None,
    keep: int,
    spared: Collection[int] = frozenset(),
    steps: Steps = UNSEEN,
) -> None:
    """Remove the generations of a view that no rollback needs any more, but for the spared.

    `steps` counts the sinks that are asked, which are expected, and what is removed.
    """
    recorded = history.steps(served.view)
    states, line = states_of(recorded), line_of(recorded)
    old = {
        name: {*to_retire(holding, previous=previous, keep=keep, states=states, line=line)}
        - {*spared}
        for name, holding in served.held(steps).items()
    }
    steps.more(sum(map(len, old.values())))
    gone: set[int] = set()
    for name, generations in old.items():
        for generation in generations:
            steps.begin(f"{served.view} {generation} in {name}")
            served.sinks[name].discard(generation)
            gone.add(generation)
            steps.done()
    history.append(
        HistoryRow(view=served.view, generation=number, state=RETIRED) for number in sorted(gone)
    )
