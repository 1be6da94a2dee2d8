"""Make checkpoints at frontiers inside a planned read, so that layers end there.

A layer has only the last record of each key; what a key held at a moment inside of the layer is not
known. A sink that is at such a frontier, without a checkpoint, needs exactly that. So the log is
read in two steps, if it still leads exactly to that frontier.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import ConfigurationError, LogError
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import FrontierRecord
from replay.base.record_place import cut_of
from replay.broker.topics import read_frontiers
from replay.store.checkpoint import CheckpointStore
from replay.store.plan import Advance, plan_advance

log = logging.getLogger("changelog.replay")

MOST_STOPS = 4
"""Positions at which layers end, the newest ones: each costs a job and a commit for each topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stops:
    """Positions where layers are to end."""

    kafka: KafkaConnection  # the brokers
    store: CheckpointStore  # of the checkpoints
    topic: str  # of the frontiers
    # for each state that a sink goes on from, the first position that is not part of it
    places: Collection[Position]

    def before(self, plan: Advance, bring: Callable[[Advance], object]) -> Advance:
        """Make checkpoints at the places on the way, and return the plan for the rest.

        A place to which the log no longer leads exactly is skipped; the caller finds that out by
        `StoredRecords.knows_rows_at`.

        Raises UnavailableLogError: the brokers do not answer.
        """
        stops = sorted({place for place in self.places if _is_inside(plan, place)})[-MOST_STOPS:]
        if not stops:
            return plan
        for record in self._records(plan.record.frontier.slot, stops):
            lsn = record.frontier.lsn
            try:
                step = self._plan(plan, record)
                if step.from_start():
                    log.info("no checkpoint leads to LSN %s, where readers are", lsn)
                    continue
                bring(step)
            except (LogError, ConfigurationError) as error:
                log.info("checkpoints pass by LSN %s, where readers are: %s", lsn, error)
        return replace(self._plan(plan, plan.record), proof=plan.proof)

    def _plan(self, plan: Advance, record: FrontierRecord) -> Advance:
        return plan_advance(
            self.kafka, self.store, record, list(plan.topics), settings=plan.settings
        )

    def _records(self, slot: str, places: Sequence[Position]) -> list[FrontierRecord]:
        """Return the frontiers of some positions, oldest first, as far as the log has them."""
        record_at = {
            cut_of(record.frontier): record
            for record in read_frontiers(self.kafka, self.topic, slot)
        }
        for place in places:
            if place not in record_at:
                log.info("the log has no frontier of %s, where readers are", place)
        return [record_at[place] for place in places if place in record_at]


def _is_inside(plan: Advance, place: Position) -> bool:
    """Return whether a position is inside the planned read of a topic with a checkpoint."""
    starts = [
        cut_of(step.checkpoint.frontier)
        for step in plan.steps.values()
        if step.checkpoint is not None and not step.needs_no_read
    ]
    return any(start < place for start in starts) and place < cut_of(plan.record.frontier)
