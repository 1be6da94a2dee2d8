"""Derived views of the log: built, proved, switched.

States come in; generations go out to sinks, each with its proof. Nobody below may import it.

`from views import Project` is what people use (`docs/python.md`); a view in Python declares itself
by `from views import view`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from views.api.project import Project as Project
    from views.api.view import View as View
    from views.demo.playground import Playground as Playground
    from views.project.declare import view as view

__all__ = ["Playground", "Project", "View", "view"]
_PLACES = {
    "Playground": "views.demo.playground",
    "Project": "views.api.project",
    "View": "views.api.view",
    "view": "views.project.declare",
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
