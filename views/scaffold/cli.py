"""The command `changelog init`, mounted through the entry-point group `changelog.commands`."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from changelog.contract.base.errors import ChangelogError, ConfigurationError
from changelog.runtime.edge import print_json
from changelog.runtime.examples import with_examples
from changelog.runtime.options import DebugOption, JsonOption
from changelog.runtime.terminal import console

_FILES = {
    "changelog.toml": "changelog.toml",
    "views/orders_per_customer.sql": "orders_per_customer.sql",
    "views/orders_per_customer.cases.toml": "orders_per_customer.cases.toml",
    "example.sql": "example.sql",
    "README.md": "readme.txt",
    ".gitignore": "gitignore.txt",
}


def write_project(directory: Path) -> list[Path]:
    """Write the files of a new project and return their paths."""
    directory = directory.resolve()
    there = [name for name in _FILES if (directory / name).exists()]
    if there:
        raise ConfigurationError(
            f"{directory} holds {', '.join(there)} already",
            hint="nothing was written; choose another folder",
        )
    written = []
    try:
        for name, template in _FILES.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            text = files("views.scaffold").joinpath(template).read_text(encoding="utf-8")
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
            written.append(path)
    except OSError as error:
        raise ChangelogError(f"cannot write {error.filename}: {error.strerror}") from error
    return written


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
