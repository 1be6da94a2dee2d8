"""The command `changelog doctor`; mounted through the entry-point group `changelog.commands`."""

from __future__ import annotations

from pathlib import Path

import typer

from changelog.runtime.options import DebugOption, JsonOption, ProjectOption


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
    from changelog.runtime.edge import print_json
    from changelog.runtime.terminal import console
    from views.operate.doctor import examine

    found = examine(project)
    if as_json:
        print_json(found.to_json())
    else:
        console.print(found.table("From the source to what serves"))
    if found.exit_code:
        raise typer.Exit(found.exit_code)
