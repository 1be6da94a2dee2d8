"""Command-line options that several commands share: one spelling, one help text, one meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MAX_FRONTIER_AGE_S = 300.0
"""An older frontier is a fault: it is written again once a minute when nothing happens."""

TOLD = "What it tells, and how"
"""The title under which help lists the options of what a command prints."""

ProjectOption = Annotated[
    Path, typer.Option("--project", help="Folder with changelog.toml; it may be missing.")
]


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        from changelog.runtime.installed.versions import versions  # noqa: PLC0415 - a tenth of a start

        print("\n".join(versions()))
        raise typer.Exit


VersionOption = Annotated[
    bool,
    typer.Option(
        "--version",
        "-V",
        callback=_tell_version,
        is_eager=True,
        help="Print the version, and those of Python and of the libraries, and end.",
        rich_help_panel=TOLD,
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="One JSON object on standard output.", rich_help_panel=TOLD)
]
AllSourcesOption = Annotated[
    bool, typer.Option("--all-sources", help="Each source of the project: [sources.NAME].")
]
DebugOption = Annotated[
    bool, typer.Option("--debug", help="Debug log, and stack traces.", rich_help_panel=TOLD)
]
