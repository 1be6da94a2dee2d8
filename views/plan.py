"""What a rebuild would do, before it does anything: asks the servers, reads no record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from changelog.config import Project
from changelog.contract.errors import VerdictError
from changelog.contract.frontier import FrontierRecord
from changelog.contract.relation import TableName
from replay.checkpoint import CheckpointStore
from replay.offsets import read_frontier
from replay.past import find_past
from replay.replay import Cut, freeze
from replay.stored import Advance, plan_advance
from views.config import RebuildSettings, Source, VerifyMode
from views.history import History
from views.report import frontier_json
from views.served import Served
from views.sinks.files import uri_of
from views.spec import ViewSpec, check_captured, short_name
from views.succession import next_generation, serving
from views.swap import states_of


@dataclass(frozen=True, slots=True)
class Plan:
    """One cut for all views of a run, and the verdict on it.

    Attributes:
        record: the frontier.
        cut: what is to be read.
        advance: how checkpoints are brought there; None when the log is read from its start.
    """

    record: FrontierRecord
    cut: Cut
    advance: Advance | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPlan:
    """What a rebuild of one view would do."""

    spec: ViewSpec
    cut: Cut
    generation: int
    serving: int | None
    advance: Advance | None = None

    def to_json(self) -> dict[str, Any]:
        """Give the object of `--plan --json`."""
        return {
            "view": self.spec.name,
            "plan": True,
            "kind": self.spec.kind,
            "key": list(self.spec.key),
            "sinks": list(self.spec.sinks),
            "topics": {short_name(table): self.cut.topics[table] for table in self.spec.tables},
            "records_at_most": self.records_at_most,
            "generation": self.generation,
            "serving": self.serving,
            "frontier": frontier_json(self.cut.record.frontier),
            "verdict": self.cut.verdict.kind.value,
            "reasons": list(self.cut.verdict.reasons),
            "from": self._from(),
        }

    @property
    def records_at_most(self) -> int:
        """Give the offsets to read up to the frontier, gaps counted."""
        if self.advance is not None:
            topics = {self.cut.topics[table] for table in self.spec.tables}
            return sum(self.advance.records_of(topic) for topic in topics)
        total = 0
        for table in self.spec.tables:
            topic = self.cut.topics[table]
            starts = self.cut.states[topic].log_starts
            ends = self.cut.record.frontier.ends[topic]
            total += sum(end - start for start, end in zip(starts, ends, strict=True))
        return total

    def _from(self) -> dict[str, str]:
        """Say for each topic where its read begins."""
        topics = [self.cut.topics[table] for table in self.spec.tables]
        if self.advance is None:
            return dict.fromkeys(topics, "the log's start")
        found = {}
        for topic in topics:
            step = self.advance.steps[topic]
            found[topic] = (
                f"the checkpoint of LSN {step.checkpoint.frontier.lsn}"
                if step.checkpoint is not None
                else f"the log's start: {step.why}"
            )
        return found

    def lines(self) -> list[str]:
        """Say it for people."""
        now = f"generation {self.serving} serves" if self.serving else "nothing serves yet"
        reads = ", ".join(f"{short_name(t)} (topic {self.cut.topics[t]})" for t in self.spec.tables)
        return [
            f"{self.spec.name} ({self.spec.kind}, {self.spec.path.name})",
            f"  reads {reads}: at most {self.records_at_most:,} records",
            *(f"  from {where} (topic {topic})" for topic, where in self._from().items()),
            f"  writes generation {self.generation} to {', '.join(self.spec.sinks)}; {now}",
        ]


def planned(specs: Sequence[ViewSpec], settings: RebuildSettings) -> Plan:
    """Choose the frontier and judge it.

    Raises:
        NoFrontierError: nothing is captured yet.
        ViewError: a view reads a table that is not captured.
        VerdictError: an older state is asked for that cannot be given.
    """
    project = settings.project
    record = read_frontier(project.kafka, settings.frontier_topic, project.slot)
    for spec in specs:
        check_captured(spec, record.frontier.tables.values(), record.frontier.aside)
    tables = tables_of(specs)
    store = store_of(project)
    if settings.as_of is None:
        cut = freeze(project.kafka, record, tables)
    else:
        past = find_past(
            project.kafka,
            settings.frontier_topic,
            project.slot,
            settings.as_of,
            tables,
            stored=_stored(store, record, tables) if settings.source is not Source.START else (),
        )
        record, cut = past.record, past.cut
    is_past = settings.as_of is not None and not cut.verdict.allows_read
    if not (settings.reads_checkpoints or is_past):
        return Plan(record, cut)
    advance = plan_advance(project.kafka, store, record, tables)
    if advance.verdict.allows_read and settings.verify is not VerifyMode.NONE:
        _require_proof(cut)
    return Plan(record, advance.cut(), advance)


def store_of(project: Project) -> CheckpointStore:
    """Give the checkpoints of a project's warehouse."""
    return CheckpointStore(uri_of(project.warehouse))


def _stored(
    store: CheckpointStore, newest: FrontierRecord, tables: Sequence[TableName]
) -> list[FrontierRecord]:
    """Give the frontiers at which there is a checkpoint of every table, oldest first."""
    by_place: dict[tuple[int, int], FrontierRecord] = {}
    common: set[tuple[int, int]] | None = None
    for table in tables:
        topic = newest.frontier.topic_of(table)
        checkpoints = store.manifest(topic).checkpoints if topic is not None else ()
        own = {(c.frontier.epoch, int(c.frontier.lsn)): c.base.record for c in checkpoints}
        by_place |= own
        common = set(own) if common is None else common & set(own)
    return [by_place[place] for place in sorted(common or ())]


def _require_proof(cut: Cut) -> None:
    """Refuse to verify against a log that cannot give the state itself any more.

    Raises:
        VerdictError: a checkpoint can give the state, the log cannot.
    """
    if not cut.verdict.allows_read:
        raise VerdictError(
            f"a checkpoint gives the state at LSN {cut.record.frontier.lsn}, but the log cannot "
            f"prove it any more: {'; '.join(cut.verdict.reasons)}",
            hint="--verify none publishes it as it was stored",
        )


def plan_view(spec: ViewSpec, plan: Plan, served: Served, history: History) -> ViewPlan:
    """Say what a rebuild of one view would do."""
    held = list(served.held_without_listing().values())
    return ViewPlan(
        spec=spec,
        cut=plan.cut,
        generation=next_generation(held, states_of(history, spec.name)),
        serving=serving(held),
        advance=plan.advance,
    )


def tables_of(specs: Sequence[ViewSpec]) -> list[TableName]:
    """Give the tables of all views, each once."""
    return list(dict.fromkeys(table for spec in specs for table in spec.tables))
