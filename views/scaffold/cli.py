"""The command `changelog init`, mounted through the entry-point group `changelog.commands`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from changelog.runtime.edge import print_json
from changelog.runtime.examples import with_examples
from changelog.runtime.options import DebugOption, JsonOption
from changelog.runtime.terminal import console
from views.scaffold.write import write_project


@with_examples("`changelog init shop` writes the folder shop; its readme says what comes next")
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the new project.")],
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Write a project: settings, an example view, a readme. Overwrites nothing."""
    written = write_project(directory)
    if as_json:
        print_json({"directory": str(directory.resolve()), "files": [str(p) for p in written]})
        return
    for path in written:
        console.print(f"wrote {path}", highlight=False, markup=False)
    console.print(f"next: see {directory}/README.md", highlight=False, markup=False)
