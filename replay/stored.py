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
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial, reduce

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from changelog.contract.connection import KafkaConnection, RegistryConnection
from changelog.contract.errors import ConfigurationError, VerdictError
from changelog.contract.frontier import Frontier, FrontierRecord
from changelog.contract.position import Position
from changelog.contract.relation import TableName
from changelog.contract.schema import SchemaPin
from replay.checkpoint import Checkpoint, CheckpointStore, Layer, Manifest, kept
from replay.clock import Clock, clock_ms
from replay.config import ReplaySettings
from replay.decode import decode
from replay.failures import translated
from replay.fold import alive, cut_of, fold_on, last_of_each_key
from replay.increment import Base, is_one_log, judge_increment
from replay.limits import lag_ms, retention_ms
from replay.offsets import inspect
from replay.probe import past_ends
from replay.read import Reader, TopicRange
from replay.replay import Cut, recheck, watching
from replay.schemas import SchemaReader, TopicSchemas
from replay.state import ReplayedState, TableMetrics
from replay.topic_state import PastEnds, TopicState, changes
from replay.verdict import Kind, Verdict, judge, together

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
        proof: how the log stands to the verifier, which reads it from its start; None where
            nobody asked.
    """

    record: FrontierRecord
    topics: Mapping[TableName, str]
    steps: Mapping[str, Step]
    states: Mapping[str, TopicState]
    verdict: Verdict
    started_ms: int
    settings: ReplaySettings
    proof: Cut | None = None

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
    past = past_ends(kafka, record.frontier, states)
    now = _Now(states=states, past=past, asked_ms=started_ms, now_ms=clock())
    steps = {
        topic: _step(
            kafka,
            store.manifest(topic),
            record,
            topic,
            now=now,
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
    return replace(plan, verdict=_judged(plan, now, estimate_ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Now:
    """What the broker said, and when.

    Attributes:
        states: how each topic stands.
        past: what stands behind the frontier's ends.
        asked_ms: our clock before it was asked.
        now_ms: our clock afterwards.
    """

    states: Mapping[str, TopicState]
    past: Mapping[str, PastEnds]
    asked_ms: int
    now_ms: int


def _step(
    kafka: KafkaConnection,
    manifest: Manifest,
    record: FrontierRecord,
    topic: str,
    *,
    now: _Now,
    allowance_ms: int,
) -> Step:
    """Go on from the newest checkpoint that leads to the frontier, else from the start."""
    why, is_lost = "", False
    newest_first = sorted(
        manifest.checkpoints,
        key=lambda each: (each.frontier.epoch, each.frontier.lsn, each.at),
        reverse=True,
    )
    for checkpoint in newest_first:
        behind = None if is_lost else _behind(kafka, checkpoint, now.states.get(topic))
        is_lost = is_lost or (behind is not None and bool(behind.truncated))
        if _holds(checkpoint, record, is_whole=not is_lost):
            return Step(topic=topic, manifest=manifest, checkpoint=checkpoint, is_there=True)
        if is_lost and behind is None:
            continue  # what a newer one has and the log has not may be missing behind it too
        verdict = judge_increment(
            {topic: checkpoint.base},
            record,
            now.states,
            started_ms=now.asked_ms,
            now_ms=now.now_ms,
            estimate_ms=None,
            allowance_ms=allowance_ms,
            past=now.past,
            behind={} if behind is None else {topic: behind},
        )
        if verdict.allows_read:
            return Step(topic=topic, manifest=manifest, checkpoint=checkpoint)
        why = why or "; ".join(verdict.reasons)
    why = why or "it has no checkpoint yet"
    return Step(topic=topic, manifest=manifest, checkpoint=None, why=why)


def _behind(
    kafka: KafkaConnection, checkpoint: Checkpoint, state: TopicState | None
) -> PastEnds | None:
    """Ask what stands behind a checkpoint's ends, where a leader has changed since."""
    known = checkpoint.frontier.leader_epochs.get(checkpoint.topic)
    if state is None or known in {None, state.leader_epochs}:
        return None
    return past_ends(kafka, checkpoint.frontier, {state.topic: state}).get(state.topic)


def _holds(checkpoint: Checkpoint, record: FrontierRecord, *, is_whole: bool) -> bool:
    """Tell whether a checkpoint is the state at a frontier: no record lies between the two.

    Equal ends say so of a log that `is_whole`: that has lost nothing since.
    """
    one, other, topic = checkpoint.frontier, record.frontier, checkpoint.topic
    return is_one_log(checkpoint.base, record, topic) and (
        one.lsn == other.lsn or (is_whole and one.ends.get(topic) == other.ends.get(topic))
    )


def _judged(plan: Advance, now: _Now, estimate_ms: int | None) -> Verdict:
    """Judge all that has to be read: from their starts some, from their checkpoints others."""
    allowance_ms = plan.settings.clock_allowance_ms
    is_there = Verdict(Kind.EXACT, None, ("a checkpoint holds it",), allowance_ms)

    def judged(topic: str, step: Step) -> Verdict:
        if step.is_there:
            return is_there
        # That leaders kept what stood before a checkpoint was asked when it was chosen; one that
        # changes after that ends the read.
        judges = (
            partial(judge, wanted=(topic,))
            if step.checkpoint is None
            else partial(judge_increment, {topic: step.checkpoint.base})
        )
        return judges(
            record=plan.record,
            topics=now.states,
            started_ms=plan.started_ms,
            asked_ms=now.asked_ms,
            now_ms=now.now_ms,
            estimate_ms=estimate_ms,
            allowance_ms=allowance_ms,
            past=now.past,
        ).topics[topic]

    found = {topic: judged(topic, step) for topic, step in plan.steps.items()}
    return together(found, allowance_ms)


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
    _proof: Cut | None = field(repr=False)
    _kafka: KafkaConnection = field(repr=False)
    _clock: Clock = field(repr=False)

    @property
    def frontier(self) -> Frontier:
        """Give the frontier that every state is true at."""
        return self.cut.record.frontier

    @property
    def pins(self) -> dict[str, SchemaPin]:
        """Give by topic the versions of the schemas that the states are read by."""
        return {
            self.cut.topics[table]: state.pin
            for table, state in self.states.items()
            if state.pin is not None
        }

    def metrics(self) -> Mapping[TableName, TableMetrics | None]:
        """Give what was read of the log for each table."""
        return self._metrics

    def watched(self) -> AbstractContextManager[object]:
        """Watch nothing: the log was watched while it was read, and is needed no more."""
        return nullcontext()

    def recheck(self) -> None:
        """Check that the log can still give what a verifier reads of it, from its start.

        What these states rest on was checked before the checkpoints were sealed.

        Raises:
            VerdictError: a topic or its settings changed, a leader moved, or a deadline passed.
            UnavailableLogError: the brokers do not answer.
        """
        if self._proof is not None:
            recheck(self._proof, self._kafka, self._clock)

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
        keys = records.select("key", F.col("key").alias("value"), "partition", "offset")
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
        frontier = plan.record.frontier
        with closing(SchemaReader(self.registry, self.kafka)) as reader:
            schemas = {
                topic: reader.of_table(topic, table, frontier.scope_of(topic).form)
                for table, topic in plan.topics.items()
            }
        plan = self._pinned(plan, schemas)
        made: dict[str, Checkpoint] = {}
        metrics: dict[str, TableMetrics] = {}
        with self._watched(plan):
            for topic, step in plan.steps.items():
                made[topic], metrics[topic] = self._made(plan, step, schemas[topic])
        with self.stage("recheck", "topics unchanged during the scan"):
            self._exact_for_ms(plan)
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
            pin = step.checkpoint.base.pin if step.checkpoint is not None else None
            if pin is not None and pin.key != schemas[topic].key_id:
                why = "the keys of its checkpoint bear another schema"
                steps[topic] = replace(step, checkpoint=None, why=why, is_there=False)
        if steps == plan.steps:
            return plan
        changed = replace(plan, steps=steps)
        past = past_ends(self.kafka, plan.record.frontier, plan.states)
        now = _Now(states=plan.states, past=past, asked_ms=plan.started_ms, now_ms=self.clock())
        verdict = _judged(changed, now, None)
        verdict.require()
        return replace(changed, verdict=verdict)

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
            lag_ms=lag_ms(plan.states[topic]),
            retention_ms=retention_ms(plan.states[topic]),
            pin=schemas.pin,
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

    def _watched(self, plan: Advance) -> AbstractContextManager[object]:
        """Watch while a block reads the log; there is nothing to watch where nothing is read."""
        if all(step.is_there for step in plan.steps.values()):
            return nullcontext()

        def exact_for_ms() -> int:
            return self._exact_for_ms(plan)

        return watching(self.spark, plan.verdict, exact_for_ms, clock=self.clock)

    def _exact_for_ms(self, plan: Advance) -> int:
        """Check that the read is exact up to now; gives for how many milliseconds it stays so."""
        asked_ms = self.clock()
        after = inspect(self.kafka, plan.states)
        moved = changes(plan.states, after)
        if moved:
            raise VerdictError(
                "the log changed while it was read: " + "; ".join(moved), hint="run it again"
            )
        past = past_ends(self.kafka, plan.record.frontier, after)
        now_ms = self.clock()
        now = _Now(states=after, past=past, asked_ms=asked_ms, now_ms=now_ms)
        again = _judged(plan, now, None)
        # Either bound suffices, as for a replay: see `replay.replay.recheck`.
        if plan.verdict.is_late(now_ms):
            again.require()
        latest = max(plan.verdict.deadline_ms or 0, again.deadline_ms or 0)
        return latest - plan.settings.clock_allowance_ms - now_ms

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
                    each.schemas.pin,
                )
                for table, each in records.items()
            },
            checkpoints={table: made[topic] for table, topic in plan.topics.items()},
            from_start=plan.from_start(),
            superseded=(),
            _metrics={table: metrics[topic] for table, topic in plan.topics.items()},
            _records=records,
            _proof=plan.proof,
            _kafka=self.kafka,
            _clock=self.clock,
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
