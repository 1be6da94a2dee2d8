"""The records of tables since a frontier, for a process that keeps their states itself.

Spark brings checkpoints forward, and seals them. A follower has the states in memory and soon needs
the last record of each key that was touched since: so the same ranges are judged, read, folded and
judged again in this process, without a task and without a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import CorruptRecordError, VerdictError
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import FrontierRecord
from changelog.contract.rows.relation import TableName
from replay.base.clock import Clock, clock_ms
from replay.base.config import ReplaySettings
from replay.base.failures import translate
from replay.base.record_place import FetchedRecord, TopicRange, cut_of
from replay.base.task_faults import MarkedError
from replay.broker.topic_state import TopicState
from replay.cut.cut import BrokerFacts, Cut, broker_facts, check_still_exact
from replay.decode.schemas import TopicSchemas
from replay.scan.last_records import FoldRules, LastRecords, StrangeRecordError
from replay.scan.range import PartitionRange, read_into
from replay.scan.scan import ranges_of
from replay.verdict.increment import StoredBase, judge_increment
from replay.verdict.limits import lag_ms, retention_ms
from replay.verdict.verdict import Verdict

_AT_ONCE = 4  # topics that are read at the same time
_ROWS, _BYTES = 5_000, 8 << 20  # most of a batch that is taken out of a fold


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTables:
    """Tables whose states at a frontier a process has."""

    record: FrontierRecord  # the frontier
    topics: Mapping[TableName, str]  # the topic of each table
    schemas: Mapping[TableName, TopicSchemas]  # of each table's topic
    states: Mapping[str, TopicState]  # the state of each topic when the frontier was read
    settings: ReplaySettings = field(default_factory=ReplaySettings)  # the verdict's margins

    @property
    def position(self) -> Position:
        """Return the first position that the tables do not include."""
        return cut_of(self.record.frontier)


@dataclass(frozen=True, slots=True, kw_only=True)
class Increment:
    """The records that lead from one frontier to a later one."""

    tables: HeldTables  # the tables at the later frontier
    # for each table the last record of each key that was touched; a tombstone has no value
    changed: Mapping[TableName, list[FetchedRecord]]
    verdict: Verdict  # on the read
    # raises if the read was not exact: the log moved, or the deadline passed
    check: Callable[[], object]

    @property
    def records(self) -> int:
        """Return the number of keys that changed."""
        return sum(map(len, self.changed.values()))


def read_increment(
    kafka: KafkaConnection, tables: HeldTables, record: FrontierRecord, clock: Clock = clock_ms
) -> Increment:
    """Read the records that lead to a later frontier.

    The read is exact if the log has not moved meanwhile. The caller has to check that before it
    sends anything of it (`Increment.check`).

    Raises:
        VerdictError: the log does not lead there from the present frontier.
        CorruptRecordError: a record is none that capture wrote.
        UnavailableLogError: the brokers do not answer.
    """
    facts = broker_facts(kafka, record.frontier, tables.topics.values(), clock)
    old = tables.record.frontier
    for topic, state in facts.states.items():
        if old.leader_epochs.get(topic) != state.leader_epochs or topic in record.frontier.grown:
            # Which records a new leader has, and in which partitions the keys are that were written
            # before a topic grew, is checked only where Spark brings checkpoints forward.
            raise VerdictError(f'topic "{topic}" has other leaders, or has grown')
    bases = {
        topic: StoredBase(
            record=tables.record,
            lag_ms=lag_ms(tables.states[topic]),
            retention_ms=retention_ms(tables.states[topic]),
            pin=tables.schemas[table].pin,
        )
        for table, topic in tables.topics.items()
    }

    started_ms = facts.asked_ms

    def judge_facts(facts: BrokerFacts, now_ms: int) -> Verdict:
        times = facts.times(now_ms, tables.settings, started_ms=started_ms)
        return judge_increment(bases, record, facts.states, times, after_ends=facts.after_ends)

    verdict = judge_facts(facts, clock())
    verdict.require()
    cut = Cut(
        record=record,
        topics=tables.topics,
        states=facts.states,
        verdict=verdict,
        started_ms=started_ms,
        settings=tables.settings,
    )
    with ThreadPoolExecutor(_AT_ONCE, "increment") as pool:
        read = partial(_changed, kafka, tables, record)
        changed = dict(zip(tables.topics, pool.map(read, tables.topics), strict=True))
    return Increment(
        tables=replace(tables, record=record, states=facts.states),
        changed=changed,
        verdict=verdict,
        check=partial(check_still_exact, kafka, cut, judge_facts, clock),
    )


def read_states(kafka: KafkaConnection, cut: Cut, schemas: TopicSchemas) -> Iterator[FetchedRecord]:
    """Read the last record of each live key of a table, from the start of its topic.

    The read is exact if the cut still is after it, which the caller has to check (`recheck`).

    Raises:
        VerdictError: the log cannot give the state, or not range by range.
        CorruptRecordError: a record is none that capture wrote.
        UnavailableLogError: the brokers do not answer.
    """
    cut.verdict.require()
    frontier, topic = cut.record.frontier, schemas.topic
    if topic in frontier.grown:
        # A key may be in several partitions, so its last record is known only after all are read.
        raise VerdictError(f'topic "{topic}" has grown')
    topic_range = TopicRange(
        topic=topic,
        starts=cut.start_offsets(topic),
        ends=frontier.ends[topic],
        key_schema_id=schemas.key_id,
    )
    rules = FoldRules.of(
        topic_range,
        since=frontier.since.get(topic),
        before=cut_of(frontier),
        most_bytes=cut.settings.task_memory_mb << 20,
    )
    for part in ranges_of(topic_range, ()):
        records = _folded(kafka, topic, part, rules, homes=len(topic_range.ends))
        yield from (record for record in records if record[1] is not None)


def _changed(
    kafka: KafkaConnection, tables: HeldTables, record: FrontierRecord, table: TableName
) -> list[FetchedRecord]:
    """Return the last record of each touched key of a table."""
    topic, frontier = tables.topics[table], record.frontier
    topic_range = TopicRange(
        topic=topic,
        starts=tables.record.frontier.ends[topic],
        ends=frontier.ends[topic],
        key_schema_id=tables.schemas[table].key_id,
    )
    rules = FoldRules.of(
        topic_range,
        since=tables.position,  # older records are resends that the tables contain
        before=cut_of(frontier),
        most_bytes=tables.settings.task_memory_mb << 20,
    )
    records: list[FetchedRecord] = []
    for part in ranges_of(topic_range, ()):
        records += _folded(kafka, topic, part, rules, homes=len(topic_range.ends))
    return records


def _folded(
    kafka: KafkaConnection, topic: str, part: PartitionRange, rules: FoldRules, *, homes: int
) -> Iterator[FetchedRecord]:
    fold = LastRecords(rules, partition=part.partition, homes=homes)
    with closing(fold) as last:
        try:
            read_into(last, kafka, topic, part)
            for some in last.drain(_ROWS, _BYTES):
                yield from zip(
                    some.keys.to_pylist(),
                    some.values.to_pylist(),
                    [part.partition] * len(some.keys),
                    some.offsets.to_pylist(),
                    strict=True,
                )
        except StrangeRecordError as error:
            place = f'topic "{topic}", partition {part.partition}, offset {error.offset}'
            raise CorruptRecordError(f"{place}: {error.why}") from error
        except MarkedError as error:
            raise translate(error) or error from error
