"""Find tables whose topics have lost records, and decide how capture reacts.

A topic must still start before the offsets from which its records are alive
(`Frontier.alive_from`). That is checked at each start of capture, by `--check` and `status`, and
before each frontier: there an attempt that finds a loss ends, and the next one decides. A topic
must also not end before the frontier's ends; a running capture knows what it has written, so that
is checked at starts, by `--check` and by `status` only.

A fresh copy repairs the table, because everything before it is dead. `changelog resnapshot` asks
for one, and its request may already wait in the WAL. So a loss stops capture only after the WAL
that existed at the start has been streamed without such a request.
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

    table: TableName
    topic: str
    error: RecordsRemovedError  # names the lost records
    answer: Reaction  # how capture reacts
    is_of_end: bool  # whether the newest records are lost: then rows copied lately may be too

    def explained(self) -> RecordsRemovedError:
        """Return the error with hints on all remedies."""
        with_way_out(self.error)
        return self.error


def losses(
    environment: Environment, frontier: Frontier, unfinished: BackfillRecord | None
) -> list[Loss]:
    """Return the tables of a frontier whose topics have lost records since.

    For a table that an unfinished backfill copies anyway, the reaction is to copy.

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
    return list(_each_loss(environment, frontier, unfinished, starts, ends))


def _each_loss(
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
    """Return the progress records, by topic, of tables whose topics have lost records.

    No frontier includes these tables until they are copied. A table that waits for a request is
    copied on any request after the frontier's LSN.
    """
    copies = unfinished.tables if unfinished is not None else {}
    return {
        loss.topic: _progress_record(loss, frontier, copies.get(loss.topic))
        for loss in lost_records
    }


def _progress_record(loss: Loss, frontier: Frontier, copy: TableBackfill | None) -> TableBackfill:
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
    """Return the backfills; a copy whose records were removed from the topic starts over."""
    ids = environment.topic_ids
    begun = {
        topic: copy
        for topic, copy in unfinished.tables.items()
        if copy.since is not None and copy.scope.keyed and ids.get(topic) == copy.topic_id
    }
    starts = environment.frontiers.starts(list(begun))
    restarted_copies = {}
    for topic, copy in begun.items():
        gaps = list(missing(starts[topic], copy.alive_from))
        if gaps:
            log.warning(
                'topic "%s": %s: copying the table %s again',
                topic,
                "; ".join(gaps),
                copy.table.said,
            )
            restarted_copies[topic] = _from_start(copy)
    if not restarted_copies:
        return unfinished
    return replace(unfinished, tables={**unfinished.tables, **restarted_copies})
