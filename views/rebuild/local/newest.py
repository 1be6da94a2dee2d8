"""The ends to which a follower's logs can be read: asked several times a second, so cheaply.

A frontier that is the newest still, and partitions that end where they ended, are nothing new. Else
all logs are cut and judged anew, as a run would cut them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.forms.declared import DeclaredLog
from changelog.contract.log.frontier import FrontierRecord
from changelog.contract.log.joined import CapturedLog
from changelog.kafka.arrivals import Arrivals
from replay.broker.topics import NewestFrontier, inspect, stable_ends
from replay.cut.cut import Cut
from views.base.config import RebuildSettings
from views.project.spec import ViewSpec
from views.rebuild.plan.plan import Plan, captured_of, logs_of, planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The ends to which a follower's logs can be read."""

    record: FrontierRecord  # the frontier that names all
    captured: tuple[FrontierRecord, ...]  # that of each capture, in the order of a plan
    declared: Cut | None = None  # where the logs of other programs end; None where none is read

    @property
    def asked_ms(self) -> int | None:
        """Return our time before the ends of declared logs were asked for, or None without logs."""
        return None if self.declared is None else self.declared.started_ms

    @classmethod
    def of_plan(cls, plan: Plan) -> Newest:
        """Return the frontiers to which a run would read."""
        cuts = plan.cuts
        captured = tuple(cut.record for cut in cuts.captured)
        return cls(record=plan.record, captured=captured, declared=cuts.declared)


class NewestLogs:
    """The ends to which the logs of some views can be read, for repeated questions."""

    def __init__(
        self, specs: Sequence[ViewSpec], settings: RebuildSettings, kafka: KafkaConnection
    ) -> None:
        self._specs, self._settings, self._kafka = specs, settings, kafka
        logs = logs_of(specs, settings)
        own = (settings.frontier_topic, settings.project.slot)
        places = dict.fromkeys([own] if captured_of(specs, logs) else [])
        places |= dict.fromkeys(
            (log.frontier_topic, log.slot) for log in logs if isinstance(log, CapturedLog)
        )
        self._frontiers = [NewestFrontier(kafka, topic, slot) for topic, slot in places]
        self._declared = [log.topic for log in logs if isinstance(log, DeclaredLog)]
        self._is_single = not logs
        self._arrivals = Arrivals(kafka, settings.frontier_topic) if self._is_single else None
        self._known: tuple[object, Newest] | None = None

    def wait(self, until: float, stop: Callable[[], bool]) -> None:
        """Return once a frontier may have come, a stop is requested, or a moment is reached.

        Without logs of others alone: these are asked for their ends at intervals.
        """
        if self._arrivals is not None:
            self._arrivals.wait(until, stop)

    def close(self) -> None:
        """Leave the brokers."""
        if self._arrivals is not None:
            self._arrivals.close()

    def read(self) -> Newest:
        """Return it.

        Raises:
            NoFrontierError: nothing is captured yet.
            UnavailableLogError: the brokers do not answer.
            ChangelogError: the logs of others are not as they are declared.
        """
        if self._is_single:
            record = self._frontiers[0].read()
            return Newest(record=record, captured=(record,))
        # The first time a plan is asked, which says of each log what is wrong with it.
        facts = None if self._known is None else self._facts()
        if self._known is None or self._known[0] != facts:
            project = replace(self._settings.project, kafka=self._kafka)
            plan = planned(self._specs, replace(self._settings, project=project))
            self._known = facts, Newest.of_plan(plan)
        return self._known[1]

    def _facts(self) -> object:
        records = [frontier.read() for frontier in self._frontiers]
        states = inspect(self._kafka, self._declared) if self._declared else {}
        return (
            [(record.frontier.slot, record.offset) for record in records],
            {topic: state.topic_id for topic, state in states.items()},
            stable_ends(self._kafka, states),
        )
