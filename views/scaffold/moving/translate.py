"""Translates files of other programs into the files of a project."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from views.scaffold.moving import debezium, jdbc, pgsync, sequin
from views.scaffold.moving.account import Account, Line, Outcome
from views.scaffold.moving.given import Program, read
from views.scaffold.moving.project import NewProject
from views.scaffold.moving.source import Tables, tables_of

_TRANSLATORS: Mapping[Program, Callable[[Account, NewProject, Tables], None]] = {
    "debezium": debezium.translate,
    "jdbc": jdbc.translate,
    "pgsync": pgsync.translate,
    "sequin": sequin.translate,
}
_HEAD = """\
Each key of the translated files: carried, so by default, or NOT carried, and why.
A view that holds FILL_IN is refused until somebody has filled it in: `rebuild-view NAME --plan`.

"""


def translated(paths: Sequence[Path], source: str | None) -> tuple[dict[str, str], list[Line]]:
    """Return the files of a project, by their paths in it, and the account of each key.

    `source`: connection string of the database whose columns and keys are asked.

    Raises:
        ConfigurationError: a file cannot be read, or is of no program that is known.
        SourceError: the source cannot be asked.
    """
    files = [read(path) for path in paths]
    tables = tables_of(source) if source else {}
    project, lines = NewProject(), []
    for file in sorted(files, key=lambda file: file.program == "jdbc"):  # sinks go by sources
        account = Account(file.name, file.content)
        _TRANSLATORS[file.program](account, project, tables)
        lines += account.lines()
    if "postgres" not in project.settings and not any(
        name.startswith("sources.") for name in project.settings
    ):
        project.set("postgres", "dsn", "${DATABASE}")
    texts = project.files()
    texts["moved.txt"] = _HEAD + "\n".join(map(str, lines)) + "\n"
    return texts, lines


def counts(lines: Sequence[Line]) -> dict[str, int]:
    """Return the number of keys of each outcome."""
    return {str(way): sum(line.outcome is way for line in lines) for way in Outcome}
