"""Our packages are found where this one is, whatever folders a user has.

A project has a folder `views`, and one of our packages is called that. Python looks first where it
was started (`python -m`, notebooks) and in `PYTHONPATH`; and an editable install by an import hook
is asked last of all, so that even a folder without `__init__.py` wins.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from threading import Thread
from types import ModuleType

PACKAGES = ("changelog", "replay", "views")
ROOT = Path(__file__).resolve().parents[2]
SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""Environment of a Python that does not look in the folder in which it is started."""


class _Ours(MetaPathFinder):
    """Finds our top packages in the folder of this module, before any other finder."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the place of one of our packages, or None for any other module."""
        if path is not None or fullname not in PACKAGES:
            return None
        return PathFinder.find_spec(fullname, [str(ROOT)], target)


def begin_to_import(name: str) -> None:
    """Import a module in a thread: while servers are waited for, that is free."""
    Thread(target=import_module, args=(name,), name=f"import {name}", daemon=True).start()


def find_ours_first() -> None:
    """Make this process find our packages and no others of their names."""
    if not any(isinstance(finder, _Ours) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Ours())
