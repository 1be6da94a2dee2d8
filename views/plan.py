"""What a rebuild would do, before it does anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from changelog.contract.frontier import FrontierRecord
from changelog.contract.relation import TableName
from replay.offsets import read_frontier
from replay.replay import Cut, freeze
from views.config import RebuildSettings
from views.history import History
from views.report import frontier_json
from views.served import Served
from views.spec import ViewSpec, check_captured, short_name
from views.succession import next_generation, serving
from views.swap import states_of


@dataclass(frozen=True, slots=True)
class Plan:
    """One cut for all views of a run, and the verdict on it."""

    record: FrontierRecord
    cut: Cut


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
            "frontier": frontier_json(self.cut.record.frontier),
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


def tables_of(specs: Sequence[ViewSpec]) -> list[TableName]:
    """Give the tables of all views, each once."""
    return list(dict.fromkeys(table for spec in specs for table in spec.tables))
