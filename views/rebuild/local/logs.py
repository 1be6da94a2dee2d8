"""The logs that a follower's tables are read from: its position in each, and the next records.

Tables of the project's own capture, those of other captures and logs of other programs stand side
by side, each at a place in its own log. A step brings all of them to later places, which one
frontier names. There is no one position in several logs, but none of the places ever goes back: so
their sum says of two states of a view which one is the later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from changelog.contract.base.connection import KafkaConnection, RegistryConnection
from changelog.contract.base.errors import VerdictError
from changelog.contract.base.position import Position
from changelog.contract.log.frontier import FrontierRecord
from changelog.contract.rows.relation import TableName
from replay.base.failures import translated
from replay.base.record_place import FetchedRecord, cut_of
from replay.cut.cut import Cut, recheck
from replay.declared.follow import FollowedLog
from replay.decode.schemas import TopicSchemas
from replay.result.state import States
from replay.store.increment import HeldTables, read_increment, read_states
from replay.store.stored import StoredRecords, StoredStates
from replay.verdict.verdict import Verdict, together
from views.rebuild.local.newest import Newest
from views.rebuild.local.table import LocalTable
from views.rebuild.plan.dialect import UnknownValueError
from views.rebuild.plan.plan import Plan

PART_BYTES = 16 << 20
_ROW_BYTES = 64  # of a row, besides its key and value
_FEW_PARTS = 4
_RECORD = ("key", "value", "partition", "offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of a follower's tables from one position to a later one."""

    logs: HeldLogs  # the later places
    # of each table the last record of each key that was touched; a tombstone has no value
    changed: Mapping[TableName, list[FetchedRecord]]
    verdict: Verdict  # on the read
    checks: tuple[Callable[[], object], ...]  # of what was read of each capture's log

    def check(self) -> None:
        """Check that the read was exact, before anything of it is sent.

        Raises VerdictError: a log moved meanwhile, or a deadline passed; UnavailableLogError: the
        brokers do not answer.
        """
        for check in self.checks:
            check()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLogs:
    """The positions in the logs of a follower's tables."""

    record: FrontierRecord  # the frontier that names all
    captured: tuple[HeldTables, ...]  # the tables of each capture
    declared: Mapping[TableName, FollowedLog]  # the logs of other programs

    @property
    def position(self) -> Position:
        """Return the first position that the tables do not hold.

        Of several logs it has the LSN of the first, and as its sequence the sum of the others'
        LSNs and of all ends of declared logs: it grows with each of them.
        """
        ends = self.record.frontier.ends
        further = [int(log.record.frontier.lsn) for log in self.captured[1:]]
        further += [end for log in self.declared.values() for end in ends[log.schemas.topic]]
        return cut_of(self.record.frontier)._replace(sequence=sum(further))

    @property
    def schemas(self) -> dict[TableName, TopicSchemas]:
        """Return the schemas of the records of each table."""
        schemas = {table: own for log in self.captured for table, own in log.schemas.items()}
        return schemas | {table: log.schemas for table, log in self.declared.items()}

    def offsets_to(self, record: FrontierRecord) -> int:
        """Return the greatest possible number of records up to a later frontier."""
        old, new = self.record.frontier.ends, record.frontier.ends
        return sum(
            max(0, end - start)
            for topic in {schemas.topic for schemas in self.schemas.values()}
            for start, end in zip(old.get(topic, ()), new.get(topic, ()), strict=False)
        )

    def step(
        self, kafka: KafkaConnection, newest: Newest, tables: Mapping[TableName, LocalTable]
    ) -> Step:
        """Read what leads to later places; `Step.check` tells whether the read was exact.

        `tables`: the rows, which have what a record of a declared log leaves out.

        Raises:
            VerdictError: a log does not lead there from what is held, or moved meanwhile: then
                the tables of declared logs are of no use any more.
            CorruptRecordError: a record cannot be read.
            UnavailableLogError: the brokers do not answer.
        """
        if len(newest.captured) != len(self.captured):
            raise VerdictError("other captures are read than before")
        changed: dict[TableName, list[FetchedRecord]] = {}
        verdicts: dict[str, Verdict] = {}
        captured, checks = [], []
        allowance_ms = 0
        for captured_log, record in zip(self.captured, newest.captured, strict=True):
            increment = read_increment(kafka, captured_log, record)
            captured.append(increment.tables)
            checks.append(increment.check)
            changed |= increment.changed
            verdicts |= increment.verdict.topics
            allowance_ms = increment.verdict.allowance_ms
        if newest.declared is not None:
            for table, log in self.declared.items():
                changed[table] = log.advance(newest.declared, tables[table].value)
            verdicts |= newest.declared.verdict.topics
            allowance_ms = newest.declared.verdict.allowance_ms
        return Step(
            logs=replace(self, record=newest.record, captured=tuple(captured)),
            changed=changed,
            verdict=together(verdicts, allowance_ms),
            checks=tuple(checks),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedLogs:
    """The tables of a run, to be held from the run's position on."""

    logs: HeldLogs  # where they stand
    states: States  # what the run was made of
    plan: Plan  # of the run
    kafka: KafkaConnection  # the brokers

    def count(self, table: TableName) -> int:
        """Return the greatest possible number of a table's rows."""
        if isinstance(self.states, StoredStates):
            return sum(layer.rows for layer in self.states.records(table).checkpoint.layers)
        return self.plan.cut.offset_count(self.plan.cut.topics[table])

    def records(self, table: TableName) -> Iterable[FetchedRecord]:
        """Return the records of a table's live keys.

        Raises:
            VerdictError: its log cannot give them any more.
            ChangelogError: its log cannot be read.
        """
        if isinstance(self.states, StoredStates):
            return _stored(self.states.records(table))
        if table in self.logs.declared:
            assert self.plan.cuts.declared is not None  # noqa: S101 - the log is a part of it
            return self.logs.declared[table].begin(self.plan.cuts.declared)
        cut = next(cut for cut in self.plan.cuts.captured if table in cut.topics)
        return read_states(self.kafka, cut, self.plan.schemas[table])

    def recheck(self) -> None:
        """Check that what was read of the logs is exact, once all of it is.

        Raises VerdictError: a log moved meanwhile, or a deadline passed; UnavailableLogError: the
        brokers do not answer.
        """
        if not isinstance(self.states, StoredStates):
            for cut in self.plan.cuts.captured:
                recheck(cut, self.kafka)


def _stored(records: StoredRecords) -> Iterator[FetchedRecord]:
    """Return the record of each live key of a stored state.

    Spark begins with the first one that is asked for, where its errors are told in our words.
    """
    with translated():
        for key, value, *place in in_parts(records.survivors().select(*_RECORD)).toLocalIterator():
            yield bytes(key), bytes(value), *place


def in_parts(records: DataFrame) -> DataFrame:
    """Return records in partitions of some megabytes: Java holds one of them at a time as a whole.

    Its heap is for tasks of Spark's, and a partition of a stored state may be half of a table.
    """
    sizes = F.sum(F.length("key") + F.length("value")), F.count(F.lit(1))
    ((total_bytes, count),) = records.select(*sizes).collect()
    parts = math.ceil(((total_bytes or 0) + count * _ROW_BYTES) / PART_BYTES)
    return records.repartition(parts, "key") if parts > _FEW_PARTS else records


def opened_logs(
    kafka: KafkaConnection, registry: RegistryConnection, states: States, plan: Plan
) -> OpenedLogs:
    """Take the tables of a run.

    Raises UnknownValueError: a log of another program cannot be gone on from; ChangelogError: the
    registry does not answer.
    """
    if isinstance(states, StoredStates):
        schemas = {table: states.records(table).schemas for table in states.states}
        cuts: tuple[Cut, ...] = (states.cut,)
    else:
        schemas, cuts = dict(plan.schemas), plan.cuts.captured
    captured = tuple(
        HeldTables(
            record=cut.record,
            topics=cut.topics,
            schemas={table: schemas[table] for table in cut.topics},
            states=cut.states,
            settings=cut.settings,
        )
        for cut in cuts
    )
    declared = {}
    for log in plan.logs:
        try:
            declared[log.table] = FollowedLog(log, kafka, registry)
        except VerdictError as error:
            raise UnknownValueError(str(error.args[0])) from error
    logs = HeldLogs(record=states.cut.record, captured=captured, declared=declared)
    return OpenedLogs(logs=logs, states=states, plan=plan, kafka=kafka)
