"""The command `changelog archive`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from changelog.config import BROKERS, Project, load_project
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.log.topic import frontier_topic
from changelog.runtime.command_line import Chosen, takes
from changelog.runtime.edge import bar_console, print_json, stop_on_signals, tell
from changelog.runtime.examples import with_examples
from changelog.runtime.installed.extras import check_extra
from changelog.runtime.options import DebugOption, JsonOption, ProjectOption
from changelog.runtime.setting import Given
from changelog.sections import SLOT, CaptureSettings, Kafka, Registry
from replay.base.sections import Kept, archive_of

if TYPE_CHECKING:
    from replay.archive.copy import Copied
    from replay.archive.store import Archive


@with_examples(
    "`changelog archive` what came since the last run",
    "`changelog archive --every '*/30 * * * *' --archive s3://lake/log` each half hour, until a "
    "signal ends it",
    "`changelog archive --check` reads every file again, and compares its digest",
    "`rebuild-view --all --from archive` builds views from it, with no broker and no registry",
)
@takes(Chosen(Kafka), Chosen(Registry), Chosen(CaptureSettings, *SLOT), Chosen(Kept, "archive"))
def archive(
    project: ProjectOption = Path(),
    *,
    overrides: Given,
    every: Annotated[
        str,
        typer.Option(
            "--every",
            metavar="CRON",
            help="Repeat by a schedule of cron: '*/30 * * * *' is each half hour. Let it be often "
            "beside min_compaction_lag_ms of [capture].",
        ),
    ] = "",
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Copy nothing: read the whole archive and compare it with its digests."
        ),
    ] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Copy the log to Parquet files, record by record, before compaction takes any of it.

    Each run goes on where the last one ended, and takes no record twice, however it ended. Ends
    with 4 where compaction was quicker than the archive: that is said with the topic and the
    offsets, the topic is copied from its start, and states before that cannot be had between.
    """
    check_extra("spark", "changelog archive")
    from replay.archive.store import Archive

    if check and every:
        raise ConfigurationError("--check goes without --every", hint="give one of them")
    settings = load_project(project, overrides=overrides, needs=[] if check else [BROKERS])
    target = Archive(archive_of(settings))
    if check:
        _check(target, as_json=as_json)
        return

    def run() -> None:
        copied = _copied(settings, target, as_json=as_json)
        _tell(copied, target, as_json=as_json)
        copied.require_whole()

    if every:
        from changelog.runtime.cron import repeat

        repeat(every, run, stop_on_signals())
    else:
        run()


def _copied(settings: Project, target: Archive, *, as_json: bool) -> Copied:
    from changelog.runtime.progress.bar import StepBar
    from replay.archive.copy import CopySource, copy_news

    source = CopySource(
        kafka=settings.kafka,
        registry=settings.registry,
        frontier_topic=frontier_topic(settings.topic_prefix),
        slot=settings.slot,
    )
    with StepBar(bar_console(as_json=as_json), "archiving") as steps:
        return copy_news(target, source, steps)


def _tell(copied: Copied, target: Archive, *, as_json: bool) -> None:
    segment = copied.segment
    if as_json:
        print_json(
            {
                "archive": target.root,
                "segment": None if segment is None else segment.number,
                "lsn": None if segment is None else str(segment.frontier.lsn),
                "records": copied.records,
                "files": 0 if segment is None else len(segment.files),
                "bytes": 0 if segment is None else sum(file.size for file in segment.files),
                "gaps": [str(gap) for gap in copied.gaps],
                "left_out": dict(copied.left_out),
            }
        )
    elif segment is None:
        tell(f"nothing new for the archive at {target.root}")
    else:
        tell(
            f"{copied.records:,} records of {len(segment.topics)} topics up to LSN "
            f"{segment.frontier.lsn}: segment {segment.number} of {target.root}"
        )


def _check(target: Archive, *, as_json: bool) -> None:
    from replay.archive.store import check as checked

    counts = None
    for lsn, counts in checked(target):
        if not as_json:
            tell(f"up to LSN {lsn}: {counts.files} files, {counts.records:,} records")
    if counts is None:
        raise ConfigurationError(
            f"there is no archive at {target.root}",
            hint="`changelog archive` makes one; `archive` of [rebuild] says where it is",
        )
    if as_json:
        print_json(
            {
                "archive": target.root,
                "segments": counts.segments,
                "files": counts.files,
                "records": counts.records,
                "bytes": counts.size,
            }
        )
