"""A joint cut of several logs, each read at a cut of its own.

No common moment exists: captured tables are read at a frontier, whole transactions of their source;
those of another capture at that one's frontier; and a log of another program up to where its
partitions ended a moment later. The joint cut has the ends of every topic, and the LSN and epoch of
the first frontier, which apply to its tables alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.forms.declared import DeclaredLog
from changelog.contract.log.frontier import Frontier, FrontierRecord
from changelog.contract.log.joined import CapturedLog, joined
from replay.cut.cut import Cut
from replay.verdict.verdict import Verdict, together


@dataclass(frozen=True, slots=True, kw_only=True)
class CutParts:
    """The parts of a cut of several logs."""

    own: Cut | None = None  # the cut of the project's own tables; None where none is read
    others: tuple[Cut, ...] = ()  # one for each other capture
    declared: Cut | None = None  # the cut of the logs of other programs; None where none is read

    @property
    def captured(self) -> tuple[Cut, ...]:
        """Return the cuts of captured logs, the project's own first."""
        return (*([] if self.own is None else [self.own]), *self.others)

    def joined(self, logs: Sequence[DeclaredLog | CapturedLog]) -> Cut:
        """Return the joint cut of all logs.

        Raises ConfigurationError: a log has the name of a captured table, or its topic.
        """
        first = self.captured[0]
        if self.own is not None:
            _check_apart(logs, self.own.record.frontier)
        cuts = [*self.captured, *([] if self.declared is None else [self.declared])]
        record = first.record
        return replace(
            first,
            record=FrontierRecord(self._frontier(), record.offset, record.appended_ms),
            topics={table: topic for cut in cuts for table, topic in cut.topics.items()},
            states={topic: state for cut in cuts for topic, state in cut.states.items()},
            verdict=_of_all(cuts, self.declared),
            densities={topic: density for cut in cuts for topic, density in cut.densities.items()},
        )

    def _frontier(self) -> Frontier:
        first = self.captured[0].record.frontier
        if self.own is None:  # another capture's: views have names of their own for its tables
            first = replace(first, tables={}, children={}, excluded={})
        if self.others:
            first = joined(
                first,
                {
                    topic: (table, cut.record.frontier)
                    for cut in self.others
                    for table, topic in cut.topics.items()
                },
            )
        if self.declared is None:
            return first
        others = self.declared.record.frontier
        return replace(
            first,
            tables={**first.tables, **others.tables},
            topic_ids={**first.topic_ids, **others.topic_ids},
            ends={**first.ends, **others.ends},
            alive_from={**first.alive_from, **others.alive_from},
        )


def _check_apart(logs: Sequence[DeclaredLog | CapturedLog], own: Frontier) -> None:
    for log in logs:
        if log.table in own.tables.values():
            raise ConfigurationError(
                f'[logs.{log.table.table}] has the name of a captured table: "{log.table}"',
                hint="give the log another name in changelog.toml, and in the views",
            )
        if log.topic in own.tables:
            raise ConfigurationError(
                f'[logs.{log.table.table}] declares topic "{log.topic}", which is that of '
                f'captured table "{own.tables[log.topic]}"',
                hint="let views read the table",
            )


def _of_all(cuts: Sequence[Cut], declared: Cut | None) -> Verdict:
    verdicts = {topic: verdict for cut in cuts for topic, verdict in cut.verdict.topics.items()}
    whole = together(verdicts, cuts[0].verdict.allowance_ms)
    if not whole.allows_read or declared is None:
        return whole
    # Beside what limits the captured tables, say by which rule each other log is read.
    captured = {t: verdict for t, verdict in verdicts.items() if t not in declared.verdict.topics}
    first = together(captured, whole.allowance_ms)
    return replace(whole, reasons=(*first.reasons, *declared.verdict.reasons))
