"""Parts that later packages add by entry points."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

DISTRIBUTION = "changelog-store"
"""What declares the entry points; those of other distributions would each cost a file to read."""


@dataclass(frozen=True, slots=True)
class Joined:
    """An entry point: its name, and what it loads."""

    name: str  # of the command or section
    module: str  # that holds it
    attr: str  # its name there

    def load(self) -> Any:  # noqa: ANN401 - any type
        """Import the module and return the attribute."""
        return getattr(import_module(self.module), self.attr)


def joined(group: str) -> list[Joined]:
    """Return the entry points of a group, by name."""
    of_group = (point for point in _all() if point.group == group)
    entries = (Joined(point.name, point.module, point.attr) for point in of_group)
    return sorted(entries, key=lambda entry: entry.name)


def described(entry: Joined) -> str | None:
    """Return an entry point's description from its source, without importing it, or None.

    That is the docstring of a function, or the text `help` of the call that makes it.
    """
    top, *parts = entry.module.split(".")
    spec = find_spec(top)
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder, *parts).with_suffix(".py")
        if path.is_file():
            return _said_of(entry.attr, _parsed(path))
    return None


def _said_of(name: str, module: ast.Module) -> str | None:
    for node in module.body:
        match node:
            case ast.FunctionDef(name=defined) if defined == name:
                return ast.get_docstring(node)
            case ast.Assign(targets=[ast.Name(id=defined)], value=ast.Call(keywords=words)):
                texts = [word.value for word in words if word.arg == "help"]
                if defined == name and texts and isinstance(texts[0], ast.Constant):
                    return str(texts[0].value)
            case _:
                pass
    return None


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def _all() -> Any:  # noqa: ANN401 - its type differs between Python 3.11 and 3.12
    from importlib.metadata import distribution  # noqa: PLC0415 - a tenth of a start

    return distribution(DISTRIBUTION).entry_points
