"""Settings of a rebuild: the project's, and what the command line chose."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from changelog.config import Project
from changelog.contract.log.topic import frontier_topic
from replay.base.config import Client, OnBadRecord, ReplaySettings
from replay.cut.asof import AsOf
from replay.spark.session import SessionSettings


class VerifyMode(Enum):
    """How much of a generation is proved before it is published."""

    NONE = "none"
    SAMPLE = "sample"
    FULL = "full"


class Source(Enum):
    """What the rows of a generation are made of."""

    START = "start"
    CHECKPOINT = "checkpoint"
    REFRESH = "refresh"


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildSettings:
    """What a run of `rebuild-view` needs to know.

    Attributes:
        project: connections, warehouse, Spark.
        verify: how much is proved.
        keep: generations that stay for a rollback, the published one counted.
        master: Spark's master URL.
        as_of: the older state that is wanted, None for the newest.
        source: the log from its start; checkpoints and what came after them; or these and the
            rows that serve. None is the log, and a checkpoint for an older state that the log
            cannot give any more.
        on_bad_record: what follows when a record that decides about a row cannot be read.
        together: whether all views of a run are published or none; else each for itself.
    """

    project: Project = field(repr=False)
    verify: VerifyMode
    keep: int
    master: str
    as_of: AsOf | None = None
    source: Source | None = None
    on_bad_record: OnBadRecord = OnBadRecord.FAIL
    together: bool = False

    @classmethod
    def of(
        cls,
        project: Project,
        *,
        verify: VerifyMode = VerifyMode.FULL,
        keep: int | None = None,
        master: str | None = None,
        as_of: AsOf | None = None,
        source: Source | None = None,
        on_bad_record: OnBadRecord | None = None,
        together: bool = False,
    ) -> RebuildSettings:
        """Take what the command line gave, else the project's."""
        return cls(
            project=project,
            verify=verify,
            keep=keep if keep is not None else project.keep,
            master=master if master is not None else project.spark_master,
            as_of=as_of,
            source=source,
            on_bad_record=on_bad_record or OnBadRecord(project.on_bad_record),
            together=together,
        )

    @property
    def reads_checkpoints(self) -> bool:
        """Tell whether states come from checkpoints."""
        return self.source in {Source.CHECKPOINT, Source.REFRESH}

    @property
    def frontier_topic(self) -> str:
        """Return the topic that frontiers are read from."""
        return frontier_topic(self.project.topic_prefix)

    def replay(self) -> ReplaySettings:
        """Return the settings of the replay."""
        return ReplaySettings(
            client=Client(self.project.spark_client),
            task_memory_mb=self.project.task_memory_mb,
            on_bad_record=self.on_bad_record,
        )

    def session(self) -> SessionSettings:
        """Return the settings of the one Spark session of a run."""
        return SessionSettings(
            master=self.master,
            app_name="rebuild-view",
            warehouse=self.project.warehouse,
            client=Client(self.project.spark_client),
            extra=self.project.spark_settings,
        )
