"""Notices tables whose topics have lost records, and decides what becomes of them.

Starts are compared with what the frontier says is dead
(`Frontier.alive_from`): at each start of capture, by `--check` and `status`, and before each
frontier, where an attempt that finds one ends and the next one decides. Ends are compared with the
frontier's at each start, and by the other two: a capture that goes on counts what it has written.

A fresh copy mends it: all before it is dead then. `changelog resnapshot` asks for one, and its
request may be waiting in the WAL already. So a table that stops capture stops it only when the
WAL of the moment of the start has been streamed and nobody has asked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from changelog.capture.start.environment import Environment
from changelog.capture.state.policy import Reaction, answer, with_way_out
from changelog.capture.write.topic_watch import Ends, Starts, removed, watched
from changelog.contract.base.errors import RecordsRemovedError
from changelog.contract.log.backfill import BackfillRecord, TableBackfill
from changelog.contract.log.frontier import Frontier, missing
from changelog.contract.rows.relation import TableName

log = logging.getLogger("changelog.capture")


@dataclass(frozen=True, slots=True)
class Loss:
    """A table whose topic has lost records."""

    table: TableName  # which one
    topic: str  # its topic
    error: RecordsRemovedError  # says so
    answer: Reaction  # what becomes of it
    is_of_end: bool  # whether the last ones are lost, what was copied lately among them

    def explained(self) -> RecordsRemovedError:
        """Return the error with all ways out."""
        with_way_out(self.error)
        return self.error


def losses(
    environment: Environment, frontier: Frontier, unfinished: BackfillRecord | None
) -> list[Loss]:
    """Return the tables of a frontier whose topics have lost records since.

    A table that is copied anew by the backfills that go on needs no other answer.

    Raises UnavailableLogError: the broker does not answer.
    """
    ids, captured = environment.topic_ids, environment.topics
    there = [
        topic
        for topic in watched(frontier)
        if captured.get(frontier.tables[topic]) == topic
        and ids.get(topic) == frontier.topic_ids.get(topic)
    ]
    places = environment.frontiers.standing(there)
    starts = {topic: place.starts for topic, place in places.items()}
    ends = {topic: place.ends for topic, place in places.items()}
    return list(_judged(environment, frontier, unfinished, starts, ends))


def _judged(
    environment: Environment,
    frontier: Frontier,
    unfinished: BackfillRecord | None,
    starts: Starts,
    ends: Ends,
) -> Iterator[Loss]:
    copies = unfinished.tables if unfinished is not None else {}
    for topic in starts:
        error = removed(frontier, topic, starts, ends)
        if error is not None:
            is_copied = topic in copies and not copies[topic].fault
            chosen = Reaction.COPY if is_copied else answer(error, environment.settings.capture)
            is_of_end = bool(frontier.lost_of(topic, ends[topic]))
            yield Loss(frontier.tables[topic], topic, error, chosen, is_of_end)


def noted(
    lost_records: Sequence[Loss], frontier: Frontier, unfinished: BackfillRecord | None
) -> dict[str, TableBackfill]:
    """Return the progress records of tables whose topics have lost records.

    No frontier speaks of them until they are whole again. Those that wait to be asked for are
    asked for by what lies behind the frontier.
    """
    copies = unfinished.tables if unfinished is not None else {}
    return {loss.topic: _noted(loss, frontier, copies.get(loss.topic)) for loss in lost_records}


def _noted(loss: Loss, frontier: Frontier, copy: TableBackfill | None) -> TableBackfill:
    if copy is not None and not copy.fault:
        return replace(_from_start(copy) if loss.is_of_end else copy, is_excluded=True)
    return TableBackfill(
        table=loss.table,
        reason=str(loss.error.args[0]),
        is_excluded=True,
        topic_id=frontier.topic_ids[loss.topic],
        fault="" if loss.answer is Reaction.COPY else str(loss.error.args[0]),
        high=frontier.lsn,
    )


def _from_start(copy: TableBackfill) -> TableBackfill:
    """Return a copy's progress reset to its start."""
    return replace(copy, since=None, done=(), rows=0, ends=(), alive_from=())


def restarted(environment: Environment, unfinished: BackfillRecord) -> BackfillRecord:
    """Return backfills without the rows that were removed from topics since they were copied."""
    ids = environment.topic_ids
    begun = {
        topic: copy
        for topic, copy in unfinished.tables.items()
        if copy.since is not None and copy.scope.keyed and ids.get(topic) == copy.topic_id
    }
    starts = environment.frontiers.starts(list(begun))
    anew = {}
    for topic, copy in begun.items():
        gaps = list(missing(starts[topic], copy.alive_from))
        if gaps:
            log.warning(
                'topic "%s": %s: copying the table %s once more',
                topic,
                "; ".join(gaps),
                copy.table.said,
            )
            anew[topic] = _from_start(copy)
    return replace(unfinished, tables={**unfinished.tables, **anew}) if anew else unfinished
