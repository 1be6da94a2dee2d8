"""The command `changelog init`, mounted through the entry-point group `changelog.commands`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from changelog.contract.base.errors import ChangelogError, ConfigurationError
from changelog.runtime.edge import print_json
from changelog.runtime.examples import with_examples
from changelog.runtime.options import DebugOption, JsonOption
from changelog.runtime.terminal import console
from views.scaffold.moving.account import Line, Outcome
from views.scaffold.moving.translate import counts, translated

_FILES = {
    "changelog.toml": "changelog.toml",
    "views/orders_per_customer.sql": "orders_per_customer.sql",
    "views/orders_per_customer.cases.toml": "orders_per_customer.cases.toml",
    "example.sql": "example.sql",
    "README.md": "readme.txt",
    ".gitignore": "gitignore.txt",
}


def new_project() -> dict[str, str]:
    """Return the files of a project with an example view, by their paths in it."""
    return {name: _text(template) for name, template in _FILES.items()}


def _text(template: str) -> str:
    return files("views.scaffold").joinpath(template).read_text(encoding="utf-8")


def write_project(directory: Path, texts: Mapping[str, str] | None = None) -> list[Path]:
    """Write the files of a project, that of the example without any; return their paths."""
    texts = texts or new_project()
    directory = directory.resolve()
    there = [name for name in texts if (directory / name).exists()]
    if there:
        raise ConfigurationError(
            f"{directory} holds {', '.join(there)} already",
            hint="nothing was written; choose another folder",
        )
    written = []
    try:
        for name, text in texts.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
            written.append(path)
    except OSError as error:
        raise ChangelogError(f"cannot write {error.filename}: {error.strerror}") from error
    return written


@with_examples(
    "`changelog init shop` writes the folder shop; its readme says what comes next",
    '`changelog init shop --from schema.json --postgres "$DATABASE"` translates pgsync\'s file',
)
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the new project.")],
    moved_from: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Translate a file of pgsync, Debezium, a JDBC sink or Sequin; repeatable.",
        ),
    ] = None,
    postgres: Annotated[
        str | None,
        typer.Option(
            "--postgres",
            "-d",
            envvar="CHANGELOG_POSTGRES_DSN",
            show_envvar=False,
            help="With --from: the source, which is asked for columns and keys of its tables.",
        ),
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Write a project: settings, views, a readme. Overwrites nothing."""
    lines: Sequence[Line] = ()
    texts: dict[str, str] = {}
    if moved_from:
        texts, lines = translated(moved_from, postgres)
        texts |= {"README.md": _text("moved_readme.txt"), ".gitignore": _text("gitignore.txt")}
    written = write_project(directory, texts)
    if as_json:
        print_json(
            {
                "directory": str(directory.resolve()),
                "files": [str(path) for path in written],
                "keys": [asdict(line) for line in lines],
            }
        )
        return
    for path in written:
        console.print(f"wrote {path}", highlight=False, markup=False)
    for line in lines:
        if line.outcome is Outcome.LEFT:
            console.print(str(line), highlight=False, markup=False, soft_wrap=True)
    if lines:
        numbers = ", ".join(f"{number} {way}" for way, number in counts(lines).items())
        text = f"keys: {numbers}; moved.txt has a line for each"
        console.print(text, highlight=False, markup=False)
    console.print(f"next: see {directory}/README.md", highlight=False, markup=False)
