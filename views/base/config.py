"""Settings of a rebuild: the project's, and what the command line chose."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from changelog.config import Project
from changelog.contract.forms.declared import DeclaredLog
from changelog.contract.log.joined import CapturedLog
from changelog.contract.log.topic import frontier_topic
from changelog.contract.rows.choices import ColumnChoice
from replay.base.config import OnBadRecord, ReplaySettings
from replay.base.sections import Logs, Spark, archive_of, warehouse_of
from replay.cut.asof import AsOf
from views.base.sections import Rebuild, Runs

if TYPE_CHECKING:
    from replay.spark.session import SessionSettings


class VerifyMode(Enum):
    """How much of a generation is proved before it is published."""

    NONE = "none"
    SAMPLE = "sample"
    CHANGED = "changed"
    FULL = "full"


class RowsSource(Enum):
    """Source of a generation's rows."""

    START = "start"
    CHECKPOINT = "checkpoint"
    REFRESH = "refresh"
    ARCHIVE = "archive"


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildSettings:
    """Settings of a run of `rebuild-view`."""

    project: Project = field(repr=False)  # connections, warehouse, Spark
    verify: VerifyMode = VerifyMode.FULL  # how much is proved
    as_of: AsOf | None = None  # the older state that is wanted, None for the newest
    # the log from its start; checkpoints and what came after them; or these and the rows that
    # serve. None is the log, and a checkpoint for an older state that the log cannot give any more
    source: RowsSource | None = None
    together: bool = False  # whether all views of a run are published or none; else each for itself
    # whether the generations are put aside, to be looked at, in place of published
    stage: bool = False
    # whether a generation that serves may be brought to the frontier, in place of writing a new one
    forward: bool = False
    certificate: bool = False  # whether what is published gets a certificate
    looks: bool = False  # whether a generation that went forward is then compared whole

    @property
    def spark(self) -> Spark:
        """Return the settings of Spark."""
        return self.project.section(Spark)

    @property
    def rebuild(self) -> Rebuild:
        """Return the settings of rebuilds."""
        return self.project.section(Rebuild)

    @property
    def runs(self) -> Runs:
        """Return the settings of runs: times, waits and alerts."""
        return self.project.section(Runs)

    @property
    def warehouse(self) -> str:
        """Return the path or URI of the folder of Delta tables."""
        return warehouse_of(self.project)

    @property
    def archive(self) -> str | None:
        """Return the path or URI of the archive that is read in place of the log, or None."""
        return archive_of(self.project) if self.source is RowsSource.ARCHIVE else None

    @property
    def logs(self) -> tuple[DeclaredLog | CapturedLog, ...]:
        """Return the logs of other programs and other captures that views may read."""
        return self.project.section(Logs).all

    @property
    def choices(self) -> tuple[ColumnChoice, ...]:
        """Return the replacement of values that have no form, by column."""
        return self.rebuild.choices

    @property
    def on_bad_record(self) -> OnBadRecord:
        """Return the reaction to a record that decides about a row and cannot be read."""
        return self.rebuild.on_bad_record

    @property
    def reads_checkpoints(self) -> bool:
        """Tell whether states come from checkpoints."""
        return self.source in {RowsSource.CHECKPOINT, RowsSource.REFRESH}

    @property
    def frontier_topic(self) -> str:
        """Return the topic that frontiers are read from."""
        return frontier_topic(self.project.topic_prefix)

    def replay(self) -> ReplaySettings:
        """Return the settings of the replay."""
        return ReplaySettings(
            task_memory_mb=self.spark.task_memory_mb,
            on_bad_record=self.on_bad_record,
        )

    def session(self) -> SessionSettings:
        """Return the settings of the one Spark session of a run."""
        from replay.spark.session import SessionSettings  # noqa: PLC0415 - Spark, for `--help`

        return SessionSettings(
            master=self.spark.master,
            app_name="rebuild-view",
            warehouse=self.warehouse,
            extra=self.spark.settings,
        )
