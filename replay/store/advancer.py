"""Bring the stored state of each topic to a frontier, then read it there.

    judge -> read [ends of the checkpoint, ends of the frontier) -> fold -> a new layer
          -> ask the log again -> seal

A topic without a usable checkpoint is read from its start into a base layer, under the ordinary
verdict. The log is needed until the seal and no longer: afterwards only layers are read.

A layer is small beside its base. Many layers are folded into one; layers that hold more than a
quarter of their base are folded with it into a new base.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import DataFrame, Observation, SparkSession

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.log.frontier import Frontier
from changelog.contract.rows.relation import TableName
from replay.base.clock import Clock, clock_ms
from replay.base.failures import translated
from replay.base.record_place import RECORD, RECORD_SCHEMA, TopicRange, cut_of
from replay.broker.probe import read_after_ends
from replay.cut.cut import BrokerFacts, check_still_exact
from replay.decode.schemas import TopicSchemas
from replay.pipeline.replay import watching
from replay.result.metrics import counted, observed, tallies
from replay.result.state import ReplayedState, TableMetrics
from replay.scan.fold import last_of_each_key, with_values
from replay.scan.scan import Scan
from replay.store.checkpoint import Checkpoint, CheckpointStore, Layer, kept
from replay.store.committed import committed, write
from replay.store.plan import Advance, TopicStep
from replay.store.stored import StoredRecords, StoredStates
from replay.verdict.increment import StoredBase
from replay.verdict.limits import lag_ms, retention_ms

MANY_LAYERS = 6  # so many after a base are folded into one
MAX_LAYER_FRACTION = 1 / 4  # of a base; with more rows in layers a new base is written
_AT_ONCE = 3  # topics that are read at the same time
SMALL_ROWS = 10_000  # a smaller base counts as one of this size

Stage = Callable[[str, str], AbstractContextManager[None]]
"""Shows and times a step, given its name and a description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advancer:
    """Brings checkpoints to a frontier."""

    spark: SparkSession
    kafka: KafkaConnection
    store: CheckpointStore
    stage: Stage
    keep_days: int = 7
    clock: Clock = clock_ms

    def advance(self, plan: Advance, tables: Mapping[TableName, TopicSchemas]) -> StoredStates:
        """Read the missing records, seal the checkpoints, and return the states.

        `tables`: the schemas of the plan's tables, read when its frontier was there.

        Raises VerdictError: the log cannot give it, or moved while it was read;
        CheckpointConflictError: another run advanced one of the topics.
        """
        plan.verdict.require()
        schemas = {topic: tables[table] for table, topic in plan.topics.items()}
        plan = self._reset_changed_keys(plan, schemas)
        # After few changes most of the time goes by waiting for brokers and Spark, so several
        # topics are read at once.
        with self._reading(plan), ThreadPoolExecutor(_AT_ONCE, "advance") as pool:
            running = {
                topic: pool.submit(self._advance_topic, plan, step, schemas[topic])
                for topic, step in plan.steps.items()
            }
            done = {topic: future.result() for topic, future in running.items()}
        checkpoints = {topic: checkpoint for topic, (checkpoint, _) in done.items()}
        metrics = {topic: counts for topic, (_, counts) in done.items()}
        with self.stage("recheck", "topics unchanged during the scan"):
            self._exact_for_ms(plan)
        with self.stage("seal", "checkpoints count from here on"):
            gone = [
                place
                for topic, checkpoint in checkpoints.items()
                for place in self._seal(plan.steps[topic], checkpoint)
            ]
        stored = self._stored(plan, checkpoints, schemas, metrics)
        return replace(stored, superseded=tuple(gone))

    def _reset_changed_keys(self, plan: Advance, schemas: Mapping[str, TopicSchemas]) -> Advance:
        """Read a topic from its start if the keys of its checkpoint have another schema."""
        steps = dict(plan.steps)
        for topic, step in plan.steps.items():
            pin = step.checkpoint.base.pin if step.checkpoint is not None else None
            if pin is not None and pin.key != schemas[topic].key_id:
                why = "the keys of its checkpoint bear another schema"
                steps[topic] = replace(step, checkpoint=None, why=why, needs_no_read=False)
        if steps == plan.steps:
            return plan
        changed = replace(plan, steps=steps)
        after_ends = read_after_ends(self.kafka, plan.record.frontier, plan.states)
        facts = BrokerFacts(states=plan.states, after_ends=after_ends, asked_ms=plan.started_ms)
        verdict = changed.judged(facts, self.clock())
        verdict.require()
        return replace(changed, verdict=verdict)

    def _advance_topic(
        self, plan: Advance, step: TopicStep, schemas: TopicSchemas
    ) -> tuple[Checkpoint, TableMetrics | None]:
        """Write the layer that brings a topic to the frontier; it does not count yet."""
        checkpoint, topic = step.checkpoint, step.topic
        nothing = TableMetrics(records_read=0, tombstones=0, rows=0)
        is_deleted = topic not in plan.states
        reaches_frontier = (
            checkpoint is not None and checkpoint.frontier.lsn >= plan.record.frontier.lsn
        )
        if checkpoint is not None and step.needs_no_read and (reaches_frontier or is_deleted):
            return checkpoint, nothing
        at = datetime.now(UTC)
        base = StoredBase(
            record=plan.record,
            lag_ms=lag_ms(plan.states[topic]),
            retention_ms=retention_ms(plan.states[topic]),
            pin=schemas.pin,
        )
        if checkpoint is not None and step.needs_no_read:
            return replace(checkpoint, base=base, at=at), nothing
        with translated():
            if checkpoint is not None:
                checkpoint = self._compacted(checkpoint)
            layer, metrics = self._layer(plan, step, schemas)
        frontier = plan.record.frontier
        if checkpoint is None:
            advanced = Checkpoint(
                topic=topic, base=base, layers=(layer,), founded=frontier, folded=frontier, at=at
            )
        else:
            layers = (*checkpoint.layers, layer)
            advanced = replace(checkpoint, base=base, layers=layers, at=at)
        return advanced, metrics

    def _compacted(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the same state in fewer layers, once there are many.

        Newer records get a layer of their own, so that a refresh from this state still finds the
        rows that its keys had.
        """
        topic, (base, *more) = checkpoint.topic, checkpoint.layers
        is_small = (
            sum(layer.rows for layer in more) <= max(base.rows, SMALL_ROWS) * MAX_LAYER_FRACTION
        )
        if is_small and len(more) < MANY_LAYERS:
            return checkpoint
        frontier = checkpoint.frontier
        if is_small:
            records = self._union(topic, [layer.name for layer in more])
            written = self._write_layer(topic, last_of_each_key(records, RECORD[1:]), frontier)
            layer = replace(written, since=more[0].since, until=more[-1].until)
            return replace(checkpoint, layers=(base, layer), folded=frontier)
        records = self._union(topic, [layer.name for layer in checkpoint.layers])
        layer = self._write_layer(
            topic, with_values(last_of_each_key(records, RECORD[1:])), frontier
        )
        return replace(checkpoint, layers=(layer,), founded=frontier, folded=frontier)

    def _layer(
        self, plan: Advance, step: TopicStep, schemas: TopicSchemas
    ) -> tuple[Layer, TableMetrics | None]:
        """Write what the log holds between a step's checkpoint and the frontier."""
        frontier, topic = plan.record.frontier, step.topic
        topic_range = TopicRange(
            topic=topic,
            starts=step.starts(frontier, plan.states),
            ends=frontier.ends[topic],
            key_schema_id=schemas.key_id,
        )
        since, until = frontier.since.get(topic), cut_of(frontier)
        if step.checkpoint is not None:
            since = cut_of(step.checkpoint.frontier)  # older records are resends, stored already
        seen = Observation()
        last = Scan(spark=self.spark, kafka=self.kafka, settings=plan.settings).last_records(
            topic_range,
            since=since,
            before=until,
            has_grown=topic in frontier.grown,
            seen=seen,
        )
        if step.checkpoint is None:
            layer = self._write_layer(topic, with_values(last), frontier)
        else:
            layer = replace(self._write_layer(topic, last, frontier), since=since, until=until)
        read = observed(seen)
        if read is None:  # Spark skipped this part of its plan, as another was empty: not counted
            return layer, None
        metrics = TableMetrics(
            records_read=read["records"],
            tombstones=read["tombstones"],
            rows=layer.rows - layer.tombstones,
        )
        return layer, metrics

    def _write_layer(self, topic: str, records: DataFrame, frontier: Frontier) -> Layer:
        name = self.store.new_layer()
        written = Observation()
        records = counted(records.select(*RECORD), written)
        write(records, self.store.layer(topic, name), metadata={"frontier": frontier.to_json()})
        # These numbers decide which layers are read, so without an observation they are counted.
        counts = observed(written) or tallies(self._union(topic, [name]))
        return Layer(name, counts["records"], counts["tombstones"])

    @contextmanager
    def _reading(self, plan: Advance) -> Iterator[None]:
        """Watch the log while the block reads it, if it reads anything."""
        read = [topic for topic, step in plan.steps.items() if not step.needs_no_read]
        if not read:
            yield
            return
        records = sum(plan.records_of(topic) for topic in read if topic in plan.states)
        text = f"{', '.join(read)}: at most {records:,} records"
        exact_for_ms = partial(self._exact_for_ms, plan)
        watched = watching(self.spark, plan.verdict, exact_for_ms, clock=self.clock)
        with self.stage("scan", text), watched:
            yield

    def _exact_for_ms(self, plan: Advance) -> int:
        """Check that the read is exact up to now; returns how many milliseconds it will stay so."""
        return check_still_exact(self.kafka, plan.cut(), plan.judged, self.clock)

    def _seal(self, step: TopicStep, checkpoint: Checkpoint) -> list[str]:
        """Seal a checkpoint, and return the layers that are no longer needed."""
        if checkpoint is step.checkpoint:
            return []
        before = step.manifest.checkpoints
        keep = kept(before, now=checkpoint.at, days=self.keep_days)
        self.store.seal(checkpoint, step.manifest, keep)
        gone = {layer.name for older in before for layer in older.layers}
        gone -= {layer.name for stays in (*keep, checkpoint) for layer in stays.layers}
        return [self.store.layer(step.topic, name) for name in sorted(gone)]

    def _stored(
        self,
        plan: Advance,
        checkpoints: Mapping[str, Checkpoint],
        schemas: Mapping[str, TopicSchemas],
        metrics: Mapping[str, TableMetrics | None],
    ) -> StoredStates:
        """Return the tables at the plan's frontier, read from their sealed layers."""
        records = {
            table: self._records(checkpoints[topic], schemas[topic])
            for table, topic in plan.topics.items()
        }
        return StoredStates(
            cut=plan.cut(),
            states={
                table: ReplayedState(
                    table=table,
                    key=stored.schemas.logged(stored.schemas.reader_id).key,
                    rows=stored.rows(stored.survivors()),
                    frontier=plan.record.frontier,
                    pin=stored.schemas.pin,
                )
                for table, stored in records.items()
            },
            checkpoints={table: checkpoints[topic] for table, topic in plan.topics.items()},
            from_start=plan.from_start(),
            superseded=(),
            _metrics={table: metrics[topic] for table, topic in plan.topics.items()},
            _records=records,
            _proof=plan.proof,
            _kafka=self.kafka,
            _clock=self.clock,
        )

    def _records(self, checkpoint: Checkpoint, schemas: TopicSchemas) -> StoredRecords:
        """Return the records of a checkpoint: its base, and the touched keys of its layers."""
        more = [layer.name for layer in checkpoint.layers[1:] if layer.rows]
        read = partial(self._union, checkpoint.topic)
        base, layers = read([checkpoint.layers[0].name]), read(more) if more else None
        if layers is None:
            touched = None
        else:
            touched = layers if len(more) == 1 else last_of_each_key(layers, RECORD[1:])
        return StoredRecords(
            checkpoint=checkpoint,
            schemas=schemas,
            base=base,
            touched=touched,
            layers=layers,
            read=read,
        )

    def _union(self, topic: str, names: Sequence[str]) -> DataFrame:
        places = [self.store.layer(topic, name) for name in names]
        return committed(self.spark, places, RECORD_SCHEMA)
