"""What later packages add to this one, by their entry points."""

from __future__ import annotations

import ast
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def joined(group: str) -> list[EntryPoint]:
    """Return the entry points of a group, by name."""
    return sorted(_all().select(group=group), key=lambda each: each.name)


def described(entry: EntryPoint) -> str | None:
    """Return what an entry point's source says of it, without importing it; None where it is mute.

    That is the docstring of a function, or the text `help` of the call that makes it.
    """
    top, *parts = entry.module.split(".")
    spec = find_spec(top)
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder, *parts).with_suffix(".py")
        if path.is_file():
            return _said_of(entry.attr, ast.parse(path.read_text("utf-8")))
    return None


def _said_of(name: str, module: ast.Module) -> str | None:
    for node in module.body:
        match node:
            case ast.FunctionDef(name=found) if found == name:
                return ast.get_docstring(node)
            case ast.Assign(targets=[ast.Name(id=found)], value=ast.Call(keywords=words)):
                texts = [word.value for word in words if word.arg == "help"]
                if found == name and texts and isinstance(texts[0], ast.Constant):
                    return str(texts[0].value)
            case _:
                pass
    return None


@cache
def _all() -> Any:  # noqa: ANN401 - its type differs between Python 3.11 and 3.12
    """Look once: it reads a file of every package that is installed."""
    return entry_points()
