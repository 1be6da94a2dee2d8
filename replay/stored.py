"""States from checkpoints: bring the stored state of each topic to a frontier, then read it there.

    judge -> read [ends of the checkpoint, ends of the frontier) -> fold -> a new layer
          -> ask the log again -> seal

A topic without a usable checkpoint is read from its start into a base layer, under the ordinary
verdict. The log is needed until the seal and no longer: what follows reads layers alone, so the
time that a view takes does not count against any deadline.

A layer holds few records beside its base. When the layers behind a base have become many they are
folded into one; when they hold more than a quarter of the base, base and layers are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import reduce

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from changelog.contract.connection import KafkaConnection, RegistryConnection
from changelog.contract.errors import ConfigurationError, VerdictError
from changelog.contract.frontier import Frontier, FrontierRecord
from changelog.contract.position import Position
from changelog.contract.relation import TableName
from replay.checkpoint import Checkpoint, CheckpointStore, Layer, Manifest, kept
from replay.config import ReplaySettings
from replay.decode import decode
from replay.failures import translated
from replay.fold import alive, cut_of, fold_on, last_of_each_key
from replay.increment import Base, is_one_log, judge_increment, setting_ms
from replay.offsets import inspect
from replay.read import Reader, TopicRange
from replay.replay import Clock, Cut, clock_ms
from replay.schemas import SchemaReader, TopicSchemas
from replay.state import ReplayedState, TableMetrics
from replay.topic_state import TopicState, changes
from replay.verdict import Kind, Verdict, judge

RECORD = ("key", "value", "partition", "offset", "position")
MANY_LAYERS = 6
MANY_ROWS = 4  # a base is made anew when a quarter of it was touched
SMALL_ROWS = 10_000  # below that a base is not worth counting
FEW_ROWS = 2_000_000  # so many keys fit every task's memory
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"

Stage = Callable[[str, str], AbstractContextManager[None]]
"""Shows and times a step: its name, and what it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is to be read of one topic.

    Attributes:
        topic: which one.
        manifest: its checkpoints.
        checkpoint: the one to go on from; None to read from the log's start.
        why: why it is read from the start; empty otherwise.
        is_there: the checkpoint holds the very state, nothing has to be read.
    """

    topic: str
    manifest: Manifest
    checkpoint: Checkpoint | None
    why: str = ""
    is_there: bool = False

    def starts(self, states: Mapping[str, TopicState]) -> tuple[int, ...]:
        """Give the first offset of each partition to read."""
        if self.checkpoint is None:
            return states[self.topic].log_starts if self.topic in states else ()
        return self.checkpoint.frontier.ends[self.topic]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """What has to be read to have the tables at a frontier; nothing of it is read yet.

    Attributes:
        record: the frontier.
        topics: the topic of each table.
        steps: what is to be read of each topic.
        states: how each topic stands.
        verdict: whether that is exact.
        started_ms: when it was judged, by our clock.
        settings: how careful the verdict is.
    """

    record: FrontierRecord
    topics: Mapping[TableName, str]
    steps: Mapping[str, Step]
    states: Mapping[str, TopicState]
    verdict: Verdict
    started_ms: int
    settings: ReplaySettings

    @property
    def records_at_most(self) -> int:
        """Give an upper bound of the records to read."""
        return sum(self.records_of(topic) for topic in self.steps)

    def records_of(self, topic: str) -> int:
        """Give an upper bound of the records to read of a topic."""
        if self.steps[topic].is_there:
            return 0
        starts = self.steps[topic].starts(self.states)
        ends = self.record.frontier.ends.get(topic, ())
        return sum(max(0, end - start) for start, end in zip(starts, ends, strict=False))

    def from_start(self) -> dict[str, str]:
        """Give the topics that are read from their start, and why."""
        return {topic: step.why for topic, step in self.steps.items() if step.checkpoint is None}

    def cut(self) -> Cut:
        """Give the same for those who ask about a replay."""
        return Cut(
            record=self.record,
            topics=self.topics,
            states=self.states,
            verdict=self.verdict,
            started_ms=self.started_ms,
            settings=self.settings,
        )


def plan_advance(
    kafka: KafkaConnection,
    store: CheckpointStore,
    record: FrontierRecord,
    tables: Sequence[TableName],
    *,
    settings: ReplaySettings | None = None,
    clock: Clock = clock_ms,
) -> Advance:
    """Choose a checkpoint for each topic and judge; needs no Spark, reads no record.

    Raises:
        ConfigurationError: a table is not part of the frontier.
        CheckpointError: a checkpoint cannot be read.
        UnavailableLogError: the brokers do not answer.
    """
    settings = settings or ReplaySettings()
    topics = {table: _topic(record.frontier, table) for table in tables}
    started_ms = clock()
    states = inspect(kafka, topics.values())
    steps = {
        topic: _step(
            store.manifest(topic),
            record,
            topic,
            states=states,
            now_ms=clock(),
            allowance_ms=settings.clock_allowance_ms,
        )
        for topic in topics.values()
    }
    plan = Advance(
        record=record,
        topics=topics,
        steps=steps,
        states=states,
        verdict=Verdict(Kind.EXACT, None, ()),
        started_ms=started_ms,
        settings=settings,
    )
    estimate_ms = settings.estimate_ms(plan.records_at_most)
    return replace(plan, verdict=_judged(plan, states, clock(), estimate_ms))


def _step(
    manifest: Manifest,
    record: FrontierRecord,
    topic: str,
    *,
    states: Mapping[str, TopicState],
    now_ms: int,
    allowance_ms: int,
) -> Step:
    """Go on from the newest checkpoint that leads to the frontier, else from the start."""
    why = ""
    newest_first = sorted(
        manifest.checkpoints,
        key=lambda each: (each.frontier.epoch, each.frontier.lsn, each.at),
        reverse=True,
    )
    for checkpoint in newest_first:
        if _holds(checkpoint, record):
            return Step(topic=topic, manifest=manifest, checkpoint=checkpoint, is_there=True)
        verdict = judge_increment(
            {topic: checkpoint.base},
            record,
            states,
            started_ms=now_ms,
            now_ms=now_ms,
            estimate_ms=None,
            allowance_ms=allowance_ms,
        )
        if verdict.allows_read:
            return Step(topic=topic, manifest=manifest, checkpoint=checkpoint)
        why = why or "; ".join(verdict.reasons)
    why = why or "it has no checkpoint yet"
    return Step(topic=topic, manifest=manifest, checkpoint=None, why=why)


def _holds(checkpoint: Checkpoint, record: FrontierRecord) -> bool:
    """Tell whether a checkpoint is the state at a frontier: no record lies between the two."""
    one, other, topic = checkpoint.frontier, record.frontier, checkpoint.topic
    return is_one_log(checkpoint.base, record, topic) and (
        one.lsn == other.lsn or one.ends.get(topic) == other.ends.get(topic)
    )


def _judged(
    plan: Advance, states: Mapping[str, TopicState], now_ms: int, estimate_ms: int | None
) -> Verdict:
    """Judge all that has to be read: from their starts some, from their checkpoints others."""
    times = {
        "started_ms": plan.started_ms,
        "now_ms": now_ms,
        "allowance_ms": plan.settings.clock_allowance_ms,
    }
    found = []
    whole = tuple(topic for topic, step in plan.steps.items() if step.checkpoint is None)
    if whole:
        found.append(judge(plan.record, states, whole, estimate_ms=estimate_ms, **times))
    bases = {
        topic: step.checkpoint.base
        for topic, step in plan.steps.items()
        if step.checkpoint is not None and not step.is_there
    }
    if bases:
        more = judge_increment(bases, plan.record, states, estimate_ms=estimate_ms, **times)
        found.append(more)
    if not found:
        return Verdict(Kind.EXACT, None, ("a checkpoint holds it",))
    worst = [each for each in found if not each.allows_read]
    if worst:
        return replace(worst[0], reasons=tuple(r for each in worst for r in each.reasons))
    is_sure = all(each.kind is Kind.EXACT for each in found)
    first = min(found, key=lambda each: (each.deadline_ms is None, each.deadline_ms or 0))
    return replace(first, kind=Kind.EXACT if is_sure else Kind.EXACT_UNTIL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The states of some tables at one frontier, from checkpoints; like a `Replay` of the log.

    Attributes:
        cut: what was read for it.
        states: the state of each table.
        checkpoints: of each table.
        from_start: the topics that were read from their start, and why.
        superseded: places of layers that no checkpoint needs any more.
    """

    cut: Cut
    states: Mapping[TableName, ReplayedState]
    checkpoints: Mapping[TableName, Checkpoint]
    from_start: Mapping[str, str]
    superseded: tuple[str, ...]
    _metrics: Mapping[TableName, TableMetrics] = field(repr=False)
    _records: Mapping[TableName, Records] = field(repr=False)

    @property
    def frontier(self) -> Frontier:
        """Give the frontier that every state is true at."""
        return self.cut.record.frontier

    def metrics(self) -> Mapping[TableName, TableMetrics | None]:
        """Give what was read of the log for each table."""
        return self._metrics

    def recheck(self) -> None:
        """Do nothing: the log was asked again before the checkpoints were sealed."""

    def records(self, table: TableName) -> Records:
        """Give the records behind a state."""
        return self._records[table]


@dataclass(frozen=True, slots=True)
class Records:
    """The records of a checkpoint, as they stood on the log.

    Attributes:
        checkpoint: whose they are.
        schemas: what they are decoded with.
        base: one record of each key that lived when the base layer was made.
        touched: the last record of each key that was touched since, tombstones included; None
            when there is no such layer.
        layers: all records behind the base layer; None when there is none.
    """

    checkpoint: Checkpoint
    schemas: TopicSchemas
    base: DataFrame
    touched: DataFrame | None
    layers: DataFrame | None

    def survivors(self) -> DataFrame:
        """Give the record of each live key."""
        if self.touched is None:
            return self.base
        return fold_on(self.base, self.touched, few=self.touched_at_most <= FEW_ROWS)

    @property
    def touched_at_most(self) -> int:
        """Give an upper bound of the keys that were touched since the base layer."""
        return sum(layer.rows for layer in self.checkpoint.layers[1:])

    def knows_changes_since(self, position: Position) -> bool:
        """Tell whether every key that was touched from a position on is among the layers."""
        return cut_of(self.checkpoint.founded) <= position

    def knows_rows_at(self, position: Position) -> bool:
        """Tell whether what every touched key held at a position is among the layers."""
        return cut_of(self.checkpoint.folded) <= position

    def changed_since(self, position: Position) -> DataFrame | None:
        """Give the last record of each key touched from a position on; None when there is none."""
        if self.touched is None:
            return None
        return self.touched.where(F.col("position") >= F.lit(bytearray(position.to_bytes())))

    def before(self, position: Position, keys: DataFrame) -> DataFrame:
        """Give the records that some keys had before a position; a deleted key has none."""
        wanted = keys.select("key")
        found = self.base.join(wanted, on="key", how="left_semi")
        if self.layers is not None:
            older = alive(self.layers, since=None, before=position)
            found = found.unionByName(older.join(wanted, on="key", how="left_semi"))
        return _alive(last_of_each_key(found, RECORD[1:]))

    def decoded(self, records: DataFrame) -> DataFrame:
        """Give rows of records of this topic, none of them a tombstone."""
        # What is observed keeps a view's own conditions above it. Below, Spark would put them
        # into one filter with "the value is not null" and try them first, so that tombstones
        # would be decoded.
        sound = records.observe(Observation(), F.count(F.lit(1)).alias("rows"))
        return decode(sound, self.schemas)

    def decoded_keys(self, records: DataFrame) -> DataFrame:
        """Give the key columns alone, of tombstones too."""
        keys = records.select(F.col("key").alias("value"), "partition", "offset")
        return decode(keys, self.schemas.of_keys())


@dataclass(frozen=True, slots=True, kw_only=True)
class Advancer:
    """Brings checkpoints to a frontier."""

    spark: SparkSession
    kafka: KafkaConnection
    registry: RegistryConnection
    store: CheckpointStore
    stage: Stage
    days: int = 7
    clock: Clock = clock_ms

    def advance(self, plan: Advance) -> Stored:
        """Read what is missing, seal it, and give the states.

        Raises:
            VerdictError: the log cannot give it, or moved while it was read.
            CheckpointConflictError: another run advanced one of the topics.
            SchemaConflictError: a topic's key has several schemas.
        """
        plan.verdict.require()
        with closing(SchemaReader(self.registry)) as reader:
            schemas = {topic: reader.of_topic(topic) for topic in plan.steps}
        plan = self._pinned(plan, schemas)
        made: dict[str, Checkpoint] = {}
        metrics: dict[str, TableMetrics] = {}
        for topic, step in plan.steps.items():
            made[topic], metrics[topic] = self._made(plan, step, schemas[topic])
        with self.stage("recheck", "topics unchanged during the scan"):
            self._recheck(plan)
        with self.stage("seal", "checkpoints count from here on"):
            gone = [
                place
                for topic, checkpoint in made.items()
                for place in self._seal(plan.steps[topic], checkpoint)
            ]
        stored = self._stored(plan, made, schemas, metrics)
        return replace(stored, superseded=tuple(gone))

    def _pinned(self, plan: Advance, schemas: Mapping[str, TopicSchemas]) -> Advance:
        """Read a topic from its start where the keys of its checkpoint bear another schema."""
        steps = dict(plan.steps)
        for topic, step in plan.steps.items():
            stored = step.checkpoint.base.key_schema_id if step.checkpoint is not None else None
            if stored is not None and stored != schemas[topic].key_id:
                why = "the keys of its checkpoint bear another schema"
                steps[topic] = replace(step, checkpoint=None, why=why, is_there=False)
        changed = replace(plan, steps=steps)
        verdict = _judged(changed, plan.states, self.clock(), None)
        verdict.require()
        return changed if steps == plan.steps else replace(changed, verdict=verdict)

    def _made(
        self, plan: Advance, step: Step, schemas: TopicSchemas
    ) -> tuple[Checkpoint, TableMetrics]:
        """Write the layer that brings a topic to the frontier; it does not count yet."""
        checkpoint, topic = step.checkpoint, step.topic
        nothing = TableMetrics(records_read=0, tombstones=0, rows=0)
        is_gone = topic not in plan.states
        is_younger = checkpoint is not None and checkpoint.frontier.lsn >= plan.record.frontier.lsn
        if checkpoint is not None and step.is_there and (is_younger or is_gone):
            return checkpoint, nothing
        at = datetime.now(UTC)
        base = Base(
            record=plan.record,
            lag_ms=setting_ms(plan.states[topic], "min.compaction.lag.ms"),
            retention_ms=setting_ms(plan.states[topic], "delete.retention.ms"),
            key_schema_id=schemas.key_id,
        )
        if checkpoint is not None and step.is_there:
            return replace(checkpoint, base=base, at=at), nothing
        text = f"{topic}: at most {plan.records_of(topic):,} records"
        with self.stage("scan", text), translated():
            if checkpoint is not None:
                checkpoint = self._compacted(checkpoint)
            layer, metrics = self._layer(plan, step, schemas)
        frontier = plan.record.frontier
        if checkpoint is None:
            made = Checkpoint(
                topic=topic, base=base, layers=(layer,), founded=frontier, folded=frontier, at=at
            )
        else:
            layers = (*checkpoint.layers, layer)
            made = replace(checkpoint, base=base, layers=layers, at=at)
        return made, metrics

    def _compacted(self, checkpoint: Checkpoint) -> Checkpoint:
        """Give the same state in fewer layers, once there are many.

        What comes after it gets a layer of its own, so that whoever refreshes from this state
        still finds what its keys held then.
        """
        topic, (base, *more) = checkpoint.topic, checkpoint.layers
        is_small = sum(layer.rows for layer in more) * MANY_ROWS <= max(base.rows, SMALL_ROWS)
        if is_small and len(more) < MANY_LAYERS:
            return checkpoint
        frontier = checkpoint.frontier
        if is_small:
            records = self._union(topic, [layer.name for layer in more])
            layer = self._write(topic, last_of_each_key(records, RECORD[1:]), frontier)
            return replace(checkpoint, layers=(base, layer), folded=frontier)
        records = self._union(topic, [layer.name for layer in checkpoint.layers])
        layer = self._write(topic, _alive(last_of_each_key(records, RECORD[1:])), frontier)
        return replace(checkpoint, layers=(layer,), founded=frontier, folded=frontier)

    def _layer(
        self, plan: Advance, step: Step, schemas: TopicSchemas
    ) -> tuple[Layer, TableMetrics]:
        """Write what the log holds between a step's checkpoint and the frontier."""
        frontier, topic = plan.record.frontier, step.topic
        wanted = TopicRange(
            topic=topic,
            starts=step.starts(plan.states),
            ends=frontier.ends[topic],
            key_schema_id=schemas.key_id,
        )
        seen = Observation()
        records = Reader(self.spark, self.kafka, plan.settings.reader_options).read(wanted)
        records = records.observe(
            seen,
            F.count(F.lit(1)).alias("records_read"),
            F.count_if(F.col("value").isNull()).alias("tombstones"),
        )
        since = frontier.since.get(topic)
        if step.checkpoint is not None:
            since = cut_of(step.checkpoint.frontier)  # what is older is sent again, and stored
        last = last_of_each_key(alive(records, since=since, before=cut_of(frontier)), RECORD[1:])
        layer = self._write(topic, _alive(last) if step.checkpoint is None else last, frontier)
        metrics = TableMetrics(
            records_read=seen.get["records_read"],
            tombstones=seen.get["tombstones"],
            rows=layer.rows - layer.tombstones,
        )
        return layer, metrics

    def _write(self, topic: str, records: DataFrame, frontier: Frontier) -> Layer:
        name = self.store.new_layer()
        counted = Observation()
        records = records.select(*RECORD).observe(
            counted,
            F.count(F.lit(1)).alias("rows"),
            F.count_if(F.col("value").isNull()).alias("tombstones"),
        )
        writer = records.write.format("delta").mode("errorifexists")
        writer.option("userMetadata", frontier.to_json()).save(self.store.layer(topic, name))
        return Layer(name, counted.get["rows"], counted.get["tombstones"])

    def _recheck(self, plan: Advance) -> None:
        after = inspect(self.kafka, plan.states)
        moved = changes(plan.states, after)
        if moved:
            raise VerdictError(
                "the log changed while it was read: " + "; ".join(moved), hint="run it again"
            )
        now_ms = self.clock()
        if plan.verdict.deadline_ms is not None and plan.verdict.is_late(now_ms):
            _judged(plan, after, now_ms, None).require()

    def _seal(self, step: Step, checkpoint: Checkpoint) -> list[str]:
        """Let a checkpoint count, and give the layers that are not needed any more."""
        if checkpoint is step.checkpoint:
            return []
        before = step.manifest.checkpoints
        keep = kept(before, now=checkpoint.at, days=self.days)
        self.store.seal(checkpoint, step.manifest, keep)
        gone = {layer.name for each in before for layer in each.layers}
        gone -= {layer.name for each in (*keep, checkpoint) for layer in each.layers}
        return [self.store.layer(step.topic, name) for name in sorted(gone)]

    def _stored(
        self,
        plan: Advance,
        made: Mapping[str, Checkpoint],
        schemas: Mapping[str, TopicSchemas],
        metrics: Mapping[str, TableMetrics],
    ) -> Stored:
        records = {
            table: self._records(made[topic], schemas[topic])
            for table, topic in plan.topics.items()
        }
        return Stored(
            cut=plan.cut(),
            states={
                table: ReplayedState(
                    table,
                    each.schemas.logged(each.schemas.reader_id).key,
                    each.decoded(each.survivors()),
                    plan.record.frontier,
                    each.schemas.reader_id,
                )
                for table, each in records.items()
            },
            checkpoints={table: made[topic] for table, topic in plan.topics.items()},
            from_start=plan.from_start(),
            superseded=(),
            _metrics={table: metrics[topic] for table, topic in plan.topics.items()},
            _records=records,
        )

    def _records(self, checkpoint: Checkpoint, schemas: TopicSchemas) -> Records:
        more = [layer.name for layer in checkpoint.layers[1:] if layer.rows]
        base = self._union(checkpoint.topic, [checkpoint.layers[0].name])
        layers = self._union(checkpoint.topic, more) if more else None
        if layers is None:
            return Records(checkpoint, schemas, base, None, None)
        touched = layers if len(more) == 1 else last_of_each_key(layers, RECORD[1:])
        return Records(checkpoint, schemas, base, touched, layers)

    def _union(self, topic: str, names: Sequence[str]) -> DataFrame:
        places = (self.store.layer(topic, name) for name in names)
        frames = [self.spark.read.format("delta").load(place) for place in places]
        return reduce(DataFrame.unionByName, frames)


def _alive(records: DataFrame) -> DataFrame:
    return records.where(F.col("value").isNotNull())


def _topic(frontier: Frontier, table: TableName) -> str:
    topic = frontier.topic_of(table)
    if topic is None:
        raise ConfigurationError(f'table "{table}" {frontier.why_absent(table)}')
    return topic
