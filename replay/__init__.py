"""Rebuilds the state of tables from the log, with Spark.

Topics and a frontier come in, a DataFrame for each table goes out. Views may import it, the
verifier may not.

`from replay import Log` is what people use: see `docs/python.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replay.api.log import Log as Log
    from replay.api.source import ChangelogSource as ChangelogSource
    from replay.api.table import LogTable as LogTable

__all__ = ["ChangelogSource", "Log", "LogTable"]
_PLACES = {
    "ChangelogSource": "replay.api.source",
    "Log": "replay.api.log",
    "LogTable": "replay.api.table",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for: importing the package does nothing."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - see above

    from changelog.runtime.installed.extras import missing_extra  # noqa: PLC0415 - likewise

    try:
        return getattr(import_module(_PLACES[name]), name)
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error
