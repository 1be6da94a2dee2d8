"""What a rebuild would do, before it does anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from changelog.contract.declared import DeclaredLog
from changelog.contract.errors import ViewError
from changelog.contract.frontier import Frontier, FrontierRecord
from changelog.contract.relation import TableName
from replay.declared import NO_FRONTIER, freeze_declared, open_declared
from replay.offsets import read_frontier
from replay.replay import Cut, Replay, freeze, open_replay
from views.config import RebuildSettings
from views.history import History
from views.report import frontier_json
from views.served import Served
from views.spec import ViewSpec, check_captured, short_name
from views.succession import next_generation, serving
from views.swap import states_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Plan:
    """One cut for all views of a run, and the verdict on it.

    Attributes:
        record: the frontier; of declared logs the ends at which they stood.
        cut: what is read.
        logs: the declared logs that are read; none where tables are captured.
    """

    record: FrontierRecord
    cut: Cut
    logs: tuple[DeclaredLog, ...] = ()

    def open(
        self, spark: SparkSession, specs: Sequence[ViewSpec], settings: RebuildSettings
    ) -> Replay:
        """Open the states that the views read; reads no record yet.

        Raises:
            VerdictError: the log can no longer give them.
            LogError: a schema is not there, or not of the form that it should be.
        """
        project = settings.project
        if self.logs:
            return open_declared(
                spark,
                project.kafka,
                project.registry,
                self.cut,
                self.logs,
                settings=settings.replay(),
            )
        return open_replay(
            spark,
            project.kafka,
            project.registry,
            self.record,
            tables_of(specs),
            settings=settings.replay(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPlan:
    """What a rebuild of one view would do."""

    spec: ViewSpec
    cut: Cut
    generation: int
    serving: int | None

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
            "frontier": frontier_json(shown(self.cut.record)),
            **self.cut.verdict.to_json(),
            "verdicts": {topic: self._topic_json(topic) for topic in self._topics},
        }

    @property
    def _topics(self) -> list[str]:
        return [self.cut.topics[table] for table in self.spec.tables]

    def _topic_json(self, topic: str) -> dict[str, Any]:
        density = self.cut.densities.get(topic)
        return {
            **self.cut.verdict.topics[topic].to_json(),
            "records": None if density is None else density.records,
            "density": None if density is None else density.ratio,
        }

    @property
    def records_at_most(self) -> int:
        """Give the offsets between the log's start and the frontier, gaps counted."""
        return sum(self.cut.offsets(topic) for topic in self._topics)

    def lines(self) -> list[str]:
        """Say it for people."""
        now = f"generation {self.serving} serves" if self.serving else "nothing serves yet"
        reads = ", ".join(f"{short_name(t)} (topic {self.cut.topics[t]})" for t in self.spec.tables)
        return [
            f"{self.spec.name} ({self.spec.kind}, {self.spec.path.name})",
            f"  reads {reads}: at most {self.records_at_most:,} records",
            *(f"  {self._topic_line(topic)}" for topic in self._topics),
            f"  writes generation {self.generation} to {', '.join(self.spec.sinks)}; {now}",
        ]

    def _topic_line(self, topic: str) -> str:
        density = self.cut.densities.get(topic)
        about = "" if density is None else f"about {density.records:,} records, "
        return f"{topic}: {about}{self.cut.verdict.topics[topic]}"


def planned(specs: Sequence[ViewSpec], settings: RebuildSettings, *, sample: bool = False) -> Plan:
    """Choose the frontier and judge it; with `sample` a few records are read, to count the rest.

    Raises:
        NoFrontierError: nothing is captured yet.
        ViewError: a view reads a table that is not captured.
    """
    project = settings.project
    if logs := declared_of(specs, settings):
        cut = freeze_declared(project.kafka, logs, sample=sample)
        return Plan(cut.record, cut, logs)
    record = read_frontier(project.kafka, settings.frontier_topic, project.slot)
    for spec in specs:
        check_captured(spec, record.frontier.tables.values(), record.frontier.aside)
    return Plan(record, freeze(project.kafka, record, tables_of(specs), sample=sample))


def plan_view(spec: ViewSpec, plan: Plan, served: Served, history: History) -> ViewPlan:
    """Say what a rebuild of one view would do."""
    held = list(served.held_without_listing().values())
    return ViewPlan(
        spec=spec,
        cut=plan.cut,
        generation=next_generation(held, states_of(history, spec.name)),
        serving=serving(held),
    )


def shown(record: FrontierRecord) -> Frontier | None:
    """Give the frontier of a cut; of declared logs there is none to show."""
    return record.frontier if record.offset != NO_FRONTIER else None


def groups_of(specs: Sequence[ViewSpec], settings: RebuildSettings) -> list[Sequence[ViewSpec]]:
    """Part the views into those of captured tables and those of declared logs: each has one cut.

    Raises:
        ViewError: a view reads both.
    """
    declared = [spec for spec in specs if declared_of([spec], settings)]
    captured = [spec for spec in specs if spec not in declared]
    return [group for group in (captured, declared) if group]


def declared_of(specs: Sequence[ViewSpec], settings: RebuildSettings) -> tuple[DeclaredLog, ...]:
    """Give the declared logs that views read; none where all they read is captured.

    Raises:
        ViewError: they read captured tables too, which no frontier cuts at the same moment.
    """
    tables = tables_of(specs)
    logs = tuple(log for log in settings.project.logs if log.table in tables)
    others = [short_name(t) for t in tables if t not in {log.table for log in logs}]
    if logs and others:
        names = ", ".join(short_name(log.table) for log in logs)
        raise ViewError(
            f"{', '.join(spec.name for spec in specs)}: reads {names}, declared in [logs], and "
            f"{', '.join(others)}, which is captured: no frontier cuts both at one moment",
            hint="make a view of each; join what they serve",
        )
    return logs


def tables_of(specs: Sequence[ViewSpec]) -> list[TableName]:
    """Give the tables of all views, each once."""
    return list(dict.fromkeys(table for spec in specs for table in spec.tables))
