"""The command `rebuild-view`: its options and help, which need nothing of what does the work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from changelog.runtime.command_line import Chosen, takes
from changelog.runtime.edge import run_app
from changelog.runtime.examples import examples
from changelog.runtime.installed.extras import check_extra
from changelog.runtime.process.garbage_collection import collect_rarely
from changelog.runtime.process.memory import keep_little
from changelog.runtime.setting import Given
from changelog.sections import CaptureSettings
from replay.base.sections import Spark
from views.base.sections import Rebuild, Runs
from views.rebuild.plan.options import Request

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="markdown")

_EPILOG = examples(
    "`rebuild-view flights_snapshot` rebuilds one view, verifies every row, publishes it",
    "`rebuild-view --all --plan` says what would be done, and whether the log can still give it",
    "`rebuild-view flights_snapshot --explain 17` says from which records that row comes",
    "`rebuild-view --all --json` for cron: one JSON object per view on standard output",
    "`rebuild-view --all --refresh` merges what has changed since; `--follow` keeps doing it",
    "`rebuild-view flights_snapshot --as-of 2026-01-31T12:00:00Z` serves the state of that moment",
    "`rebuild-view --all --from archive` needs no broker: it reads what `changelog archive` copied",
    "`rebuild-view flights_snapshot --rollback` serves the previous generation again",
    "`rebuild-view flights_snapshot --stage` builds and verifies without showing it to readers; "
    "`--diff` compares it with what serves, `--publish` switches to it, `--abort` removes it",
    "`rebuild-view flights_snapshot --drop` removes the view from every sink",
    "`rebuild-view --all --timeout 7200 --wait 600 --max-age 3600` for schedulers, which try again",
    more="**Schedules** `rebuild-view schedule` needs no scheduler: it runs what `[schedule]` of "
    "changelog.toml says, and has a help of its own\n\n"
    "**Exit codes** 0 done (--diff: whether or not there are differences) · 1 failed or stopped, "
    "the old generation serves · 2 usage or configuration · 3 refuted by verification, the old "
    "generation serves · 4 the log can no longer give it · 5 another rebuild of the view runs",
)

_SCHEDULED = examples(
    "`rebuild-view schedule` until a signal ends it, with this in changelog.toml:",
    '`[schedule.nightly]` `cron = "0 3 * * *"` `run = "--all --from start --verify full"` '
    '`timezone = "Europe/Berlin"`',
    "`rebuild-view schedule --next` says when",
)


@app.command(epilog=_EPILOG, no_args_is_help=True)
@takes(Chosen(Rebuild), Chosen(Runs), Chosen(Spark), Chosen(CaptureSettings, "source"))
def rebuild_view(*, asked: Request, given: Given) -> None:
    """Rebuild views from the log: build aside, verify row by row, publish every sink at once.

    Readers see the old generation or the new one, never the work, also when this is killed. It
    asks no question (but --drop, without --yes) and needs no terminal.
    """
    check_extra("follow" if asked.following else "spark", "rebuild-view")
    from views import command

    command.run(asked, given)


schedule_app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown"
)


@schedule_app.command(epilog=_SCHEDULED)
def schedule(
    project: Annotated[
        Path, typer.Option("--project", help="Folder with changelog.toml and views/.")
    ] = Path(),
    next_times: Annotated[
        bool, typer.Option("--next", help="Say when each is due next, and end.")
    ] = False,
) -> None:
    """Run what `[schedule]` of changelog.toml declares, each at its times, until a signal ends it.

    Each run is a process of its own; of one schedule there is one at a time.
    """
    from views import scheduling

    scheduling.run(project, app, next_times=next_times)


def main() -> None:
    """Run the command line."""
    collect_rarely()
    if "--follow" in sys.argv:
        keep_little()
    if sys.argv[1:2] == ["schedule"]:
        # No command beside the views: a view of that name is `rebuild-view --project . schedule`.
        del sys.argv[1]
        run_app(schedule_app, "rebuild-view schedule")
    else:
        run_app(app, "rebuild-view")
