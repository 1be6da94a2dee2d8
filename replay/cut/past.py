"""Find the frontier of an older state, and say what there is where that one cannot be had."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import VerdictError
from changelog.contract.log.frontier import Frontier, FrontierRecord
from changelog.contract.rows.relation import TableName
from replay.base.clock import clock_ms
from replay.base.config import ReplaySettings
from replay.broker.topics import inspect, read_frontiers
from replay.cut.asof import AsOf, chosen, is_young, nearest
from replay.cut.cut import Cut, make_cut


@dataclass(frozen=True, slots=True)
class PastCut:
    """An older frontier, and the cut of the log at it."""

    record: FrontierRecord
    cut: Cut


def find_past(
    kafka: KafkaConnection,
    frontier_topic: str,
    slot: str,
    as_of: AsOf,
    tables: Sequence[TableName],
    *,
    stored: Sequence[FrontierRecord] = (),
    settings: ReplaySettings | None = None,
    option: str = "--as-of",
) -> PastCut:
    """Return the older frontier that answers: from the log while it is exact, else a stored one.

    `tables`: that are to be read. `stored`: frontiers of checkpoints that hold all of `tables`.
    `option`: how the reader of a message would ask for another moment.

    Raises:
        VerdictError: neither can give it; the hint names the nearest that can be given.
        NoFrontierError: there is no frontier topic.
    """
    settings = settings or ReplaySettings()
    records = [
        record
        for record in read_frontiers(kafka, frontier_topic, slot)
        if all(record.frontier.topic_of(table) is not None for table in tables)
    ]
    topics = [record.frontier.topic_of(table) or "" for record in records[-1:] for table in tables]
    state = inspect(kafka, [frontier_topic])[frontier_topic]
    lag_ms = int(state.settings.get("min.compaction.lag.ms") or 0)
    now_ms = clock_ms() + settings.clock_allowance_ms
    is_next = partial(is_young, lag_ms=lag_ms, now_ms=now_ms)
    record_found = chosen(records, as_of, topics, is_next=is_next)
    why = "no frontier of it is left on the log"
    if records and as_of.reaches(records[-1].frontier, records[-1].frontier.epoch):
        why = "the log has not come so far"
    if record_found is not None:
        cut = make_cut(kafka, record_found, tables, settings=settings)
        if cut.verdict.allows_read:
            return PastCut(record_found, cut)
        why = "; ".join(cut.verdict.reasons)
    epoch = records[-1].frontier.epoch if records else 0
    for record in stored:
        chosen_frontier = record_found.frontier if record_found is not None else None
        if _same(record.frontier, chosen_frontier) or as_of.is_exactly(record.frontier, epoch):
            return PastCut(record, make_cut(kafka, record, tables, settings=settings))

    def is_exact(record: FrontierRecord) -> bool:
        return make_cut(kafka, record, tables, settings=settings).verdict.allows_read

    exact = records[bisect_left(records, x=True, key=is_exact) :]  # all from some moment on
    frontiers = [record.frontier for record in (*exact, *stored)]
    raise refused(as_of, why, nearest(frontiers, as_of, epoch), option)


def _same(one: Frontier, other: Frontier | None) -> bool:
    return other is not None and (one.epoch, one.lsn) == (other.epoch, other.lsn)


def refused(as_of: AsOf, why: str, near: Sequence[Frontier], option: str) -> VerdictError:
    """Return the error about a moment that cannot be given, with the nearest that can."""
    choices = [
        f"{option} {frontier.lsn} ({_moment(frontier.ts_us)}, epoch {frontier.epoch})"
        for frontier in near
    ]
    return VerdictError(
        f"the state as of {as_of.text} cannot be given exactly: {why}",
        hint=f"the nearest that can be given: {' or '.join(choices)}"
        if choices
        else "nothing can be given: let capture write a newer frontier",
    )


def _moment(ts_us: int) -> str:
    return datetime.fromtimestamp(ts_us / 1_000_000, UTC).isoformat(timespec="milliseconds")
