"""Tables of other captures: each capture's cut at a frontier of its own, judged like our own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import (
    ConfigurationError,
    LogError,
    NoFrontierError,
    VerdictError,
)
from changelog.contract.log.frontier import Frontier, FrontierRecord
from changelog.contract.log.joined import CapturedLog
from changelog.contract.log.topic import topic_name
from changelog.contract.rows.relation import TableName
from changelog.runtime.progress.steps import UNSEEN, Steps
from replay.base.clock import Clock, clock_ms
from replay.base.config import ReplaySettings
from replay.broker.topics import read_frontier
from replay.cut.cut import Cut, make_cut

_FRONTIER = "_frontier"


def make_other_cuts(
    kafka: KafkaConnection,
    logs: Sequence[CapturedLog],
    *,
    settings: ReplaySettings | None = None,
    clock: Clock = clock_ms,
    sample: bool = False,
    steps: Steps = UNSEEN,
) -> tuple[Cut, ...]:
    """Cut the logs of other captures at the newest frontier of each; one cut for each capture.

    The frontier of a cut calls the tables as their source does, its `topics` as views do. `steps`
    counts as in `make_cut`.

    Raises:
        LogError: a capture has no frontier there.
        ConfigurationError: a frontier does not speak of a topic.
        VerdictError: it has left the topic's table out, for the reason that it says.
        UnavailableLogError: the brokers do not answer, or a transaction is open before the ends.
    """
    cuts = []
    for own in _by_capture(logs):
        record = _newest(kafka, own[0])
        tables = [_source_table(record.frontier, log) for log in own]
        cut = make_cut(
            kafka, record, tables, settings=settings, clock=clock, sample=sample, steps=steps
        )
        cuts.append(replace(cut, topics={log.table: log.topic for log in own}))
    return tuple(cuts)


def table_of_source(kafka: KafkaConnection, log: CapturedLog) -> TableName:
    """Return the name that a log's table has at its source, by the newest frontier.

    Raises:
        LogError: its capture has no frontier there.
        ConfigurationError: the frontier does not speak of the topic.
        VerdictError: it has left the topic's table out, for the reason that it says.
        UnavailableLogError: the brokers do not answer.
    """
    return _source_table(_newest(kafka, log).frontier, log)


def newest_of(kafka: KafkaConnection, logs: Sequence[CapturedLog]) -> dict[str, FrontierRecord]:
    """Return by topic the newest frontier of the capture that writes it.

    Raises LogError: a capture has no frontier there; UnavailableLogError: the brokers do not
    answer.
    """
    newest: dict[str, FrontierRecord] = {}
    for own in _by_capture(logs):
        newest |= dict.fromkeys((log.topic for log in own), _newest(kafka, own[0]))
    return newest


def _by_capture(logs: Sequence[CapturedLog]) -> list[list[CapturedLog]]:
    captures: dict[tuple[str, str], list[CapturedLog]] = {}
    for log in logs:
        captures.setdefault((log.frontier_topic, log.slot), []).append(log)
    return list(captures.values())


def _newest(kafka: KafkaConnection, log: CapturedLog) -> FrontierRecord:
    try:
        return read_frontier(kafka, log.frontier_topic, log.slot)
    except NoFrontierError as error:
        # Not for the caller to take for a project of which nothing is captured yet.
        raise LogError(
            f"{_where(log)}: {error.args[0]}",
            hint="let that capture finish its first snapshot, or correct `frontier` and `slot`",
        ) from error


def _source_table(frontier: Frontier, log: CapturedLog) -> TableName:
    table = frontier.tables.get(log.topic)
    if table is not None:
        return table
    subject = f'{_where(log)}: topic "{log.topic}"'
    prefix = log.frontier_topic.removesuffix(_FRONTIER).removesuffix(".")
    for excluded, why in frontier.excluded.items():
        if topic_name(excluded, prefix) == log.topic:
            raise VerdictError(
                f'{subject} is that of table "{excluded}", which its capture excludes: {why}',
                hint="`changelog status` of that capture says what to do",
            )
    names = ", ".join(sorted(frontier.tables)) or "none"
    raise ConfigurationError(
        f'{subject} holds no table that the frontier of slot "{log.slot}" speaks of',
        hint=f"its topics are: {names}",
    )


def _where(log: CapturedLog) -> str:
    name = log.table.table if log.table.schema == "public" else str(log.table)
    return f"[logs.{name}]"
