"""The commands `changelog doctor`, `changelog wait` and `changelog teardown`.

Mounted through the entry-point group `changelog.commands`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from changelog.runtime.command_line import Chosen, takes
from changelog.runtime.examples import with_examples
from changelog.runtime.installed.extras import check_extra
from changelog.runtime.options import DebugOption, JsonOption, ProjectOption
from changelog.runtime.setting import Given
from changelog.sections import SLOT, CaptureSettings, Kafka, Postgres, Registry

if TYPE_CHECKING:
    from changelog.capture.inspect.parts import MadePart


@with_examples(
    "`changelog doctor` in the project's folder, or `changelog doctor --project shop --json`"
)
def doctor(
    project: ProjectOption = Path(),
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Look at everything, from the source to what serves, and say what to do about it.

    The machine (versions, memory, disks, Java), the settings, PostgreSQL, broker and registry, the
    slot and how far the log is behind, each topic's verdict, each view and its sinks. It makes
    nothing. Ends with the code of the first problem.
    """
    from changelog.runtime.edge import bar_console, print_json
    from changelog.runtime.progress.bar import StepBar
    from changelog.runtime.terminal import console

    check_extra("spark", "changelog doctor")
    from views.operate.doctor import examine

    with StepBar(bar_console(as_json=as_json), "looking at") as steps:
        findings = examine(project, steps=steps)
    if as_json:
        print_json(findings.to_json())
    else:
        console.print(findings.table("From the source to what serves"))
    if findings.exit_code:
        raise typer.Exit(findings.exit_code)


@with_examples(
    "`changelog wait orders_by_customer --lsn 0/16B3748` ends once all its sinks show that",
    "`changelog wait orders_by_customer --sink cache --timeout 5` for all that is committed by now",
    more="**Exit codes** 0 readers see it · 1 not in time, or nobody follows the view · "
    "2 no such view, or an LSN that its log will never have",
)
@takes(Chosen(Postgres), Chosen(Kafka), Chosen(CaptureSettings, *SLOT))
def wait(
    view: Annotated[str, typer.Argument(metavar="VIEW", help="The view.")],
    project: ProjectOption = Path(),
    *,
    overrides: Given,
    lsn: Annotated[
        str,
        typer.Option(
            "--lsn",
            help="Wait for what was committed before this LSN; `now` asks the source for its own.",
        ),
    ] = "now",
    sink: Annotated[
        str | None, typer.Option("--sink", help="Wait for this sink alone, such as cache.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, help="The longest wait, in seconds; 0 looks once.")
    ] = 30.0,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Wait until readers of a view see all that was committed before an LSN.

    Take the LSN after the commit: `SELECT pg_current_wal_insert_lsn()`. The sinks are asked what
    they show. It starts nothing: somebody else follows the view, or rebuilds it.
    """
    from changelog.runtime.edge import print_json, tell

    check_extra("spark", "changelog wait")
    from views.generations.reached import awaited

    reached = awaited(project, overrides, view, lsn, sink=sink, timeout_s=timeout)
    if as_json:
        print_json(reached.to_json())
    else:
        shown = ", ".join(f"{name} is at {at}" for name, at in reached.sinks.items())
        older = any(at < reached.lsn for at in reached.sinks.values())
        rest = ", and its tables have no newer change" if older else ""
        tell(f"view {view} shows {reached.lsn}: {shown}{rest}")


@with_examples(
    "`changelog teardown --plan` only says what would go",
    "`changelog teardown --keep topics --keep subjects` leaves the log, and asks for all else",
)
@takes(Chosen(Postgres), Chosen(Kafka), Chosen(Registry), Chosen(CaptureSettings, *SLOT))
def teardown(
    project: ProjectOption = Path(),
    *,
    given: Given,
    plan: Annotated[
        bool, typer.Option("--plan", "--dry-run", help="Only say what would be removed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep",
            help="Leave this: slot, publication, heartbeat, signals, triggers, views, state, "
            "topics, subjects or frontiers; repeatable.",
        ),
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Remove all that the project has made outside its folder, each kind after asking.

    Slot, publication and own tables at PostgreSQL, views in every sink with all generations, what
    rebuilds keep, topics, subjects of the registry. It refuses while a capture, a rebuild or a
    follower runs, leaves alone what is not its own, goes on when a server is away, and ends with 1
    and what is left; the next run removes that.
    """
    from changelog.config import BROKERS, SOURCE, load_project
    from changelog.runtime.edge import bar_console, print_json
    from changelog.runtime.progress.bar import StepBar
    from changelog.runtime.terminal import console

    check_extra("spark", "changelog teardown")
    from views.operate.teardown import check_kinds, look

    kept = frozenset(keep or ())
    check_kinds(kept)
    settings = load_project(project, overrides=given, needs=[SOURCE, BROKERS])
    shown = bar_console(as_json=as_json)
    with StepBar(shown, "looking for") as steps:
        remains = look(settings, steps)
    if plan:
        remains.plan(kept)
    else:
        remains.carry_out(
            lambda part: part.kind not in kept and (yes or _agreed(part)),
            lambda parts: StepBar(shown, "removing", parts),
        )
    if as_json:
        print_json(remains.findings.to_json())
    else:
        console.print(remains.findings.table("What would go" if plan else "What was removed"))
    if remains.findings.exit_code:
        raise typer.Exit(remains.findings.exit_code)


def _agreed(part: MadePart) -> bool:
    """Ask whether a part goes.

    Raises ConfigurationError: nobody is there to ask.
    """
    from views.operate.teardown import refused

    if not sys.stdin.isatty():
        raise refused(part)
    return typer.confirm(f"Remove {part}?", err=True)
