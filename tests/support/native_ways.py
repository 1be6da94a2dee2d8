"""The two ways of the native part, for tests that hold the one to the other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from changelog import native
from changelog.native.choice import IS_COMPILED

WAYS = ["compiled", "plain"] if IS_COMPILED else ["plain"]
_WHERE = ("benchmarks.", "changelog.", "replay.", "tests.")
_NOT_WHERE = ("changelog.native.compiled", "changelog.native.plain")

needs_c = pytest.mark.skipif(not IS_COMPILED, reason="about the compiled way")


NAMES = [(module, name) for module, names in native.NAMES.items() for name in names]
"""Classes and functions that there are on each way, with their modules."""
_MODULES = {name: module for module, name in NAMES}


def on(way: str, name: str) -> Any:
    return getattr(import_module(f"changelog.native.{way}.{_MODULES[name]}"), name)


def take(way: str, patch: pytest.MonkeyPatch) -> None:
    """Let all modules that are loaded take a way."""
    taken = WAYS[0]
    for _, name in NAMES:
        before, after = on(taken, name), on(way, name)
        patch.setattr(native, name, after)  # for the modules that are loaded later
        for where, place in list(sys.modules.items()):
            if not where.startswith(_WHERE) or where.startswith(_NOT_WHERE):
                continue
            for at, value in list(vars(place).items()):
                if value is before:
                    patch.setattr(place, at, after)


@pytest.fixture(params=WAYS, scope="module")
def native_way(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        take(request.param, patch)
        yield request.param
