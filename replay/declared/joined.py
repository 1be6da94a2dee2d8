"""Captured tables and declared logs side by side: each by its own cut, under one that names both.

No moment cuts the two together: the captured tables stand at a frontier, whole transactions of
their source, and each log where its partitions ended a moment later. The cut that names both has
the frontier's LSN and epoch, which speak of the captured tables alone, and the ends of every topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.forms.declared import DeclaredLog
from changelog.contract.log.frontier import FrontierRecord
from replay.cut.cut import Cut
from replay.verdict.verdict import Verdict, together


@dataclass(frozen=True, slots=True)
class CutParts:
    """What a cut of both is made of: that of the captured tables, and that of the logs."""

    captured: Cut
    declared: Cut

    def joined(self, logs: Sequence[DeclaredLog]) -> Cut:
        """Return the cut that names both.

        Raises:
            ConfigurationError: a log has the name of a captured table, or its topic.
        """
        captured, declared = self.captured, self.declared
        own, others = captured.record.frontier, declared.record.frontier
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
        frontier = replace(
            own,
            tables={**own.tables, **others.tables},
            topic_ids={**own.topic_ids, **others.topic_ids},
            ends={**own.ends, **others.ends},
            alive_from={**own.alive_from, **others.alive_from},
        )
        record = captured.record
        return replace(
            captured,
            record=FrontierRecord(frontier, record.offset, record.appended_ms),
            topics={**captured.topics, **declared.topics},
            states={**captured.states, **declared.states},
            verdict=_both(captured.verdict, declared.verdict),
            densities={**captured.densities, **declared.densities},
        )


def _both(captured: Verdict, declared: Verdict) -> Verdict:
    whole = together({**captured.topics, **declared.topics}, captured.allowance_ms)
    if not whole.allows_read:
        return whole
    # By which rule each log is read is told beside what limits the captured tables.
    return replace(whole, reasons=(*captured.reasons, *declared.reasons))
