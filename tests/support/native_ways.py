"""The two ways of the native part, for tests that hold the one to the other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from changelog.native.choice import IS_COMPILED

CLASSES = {
    "loads.batch_reader": ("BatchReader",),
    "loads.batches": ("Batch", "BatchRange"),
    "buffers": ("Records", "Texts", "WrittenPlaces"),
    "copydata": ("read_copy", "read_stream"),
    "loads.copyrows": ("RowCopier",),
    "decode": ("RowDecoder",),
    "fold": ("Fold", "text_hashes"),
    "intake": ("Intake", "RecordColumns"),
    "producer": ("ProducerHandle",),
    "reader": ("RangeReader",),
    "rows": ("BatchCodec",),
    "runs": ("Run",),
}
"""What there is on each way, by its module."""

WAYS = ["compiled", "plain"] if IS_COMPILED else ["plain"]
_WHERE = ("benchmarks.", "changelog.", "replay.", "tests.")
_NOT_WHERE = ("changelog.native.compiled", "changelog.native.plain")

needs_c = pytest.mark.skipif(not IS_COMPILED, reason="about the compiled way")


def on(way: str, module: str, name: str) -> Any:
    """Return what a way has."""
    return getattr(import_module(f"changelog.native.{way}.{module}"), name)


def take(way: str, patch: pytest.MonkeyPatch) -> None:
    """Let all modules that are loaded take a way."""
    taken = WAYS[0]
    for module, names in CLASSES.items():
        for name in names:
            before, after = on(taken, module, name), on(way, module, name)
            for where, place in list(sys.modules.items()):
                if not where.startswith(_WHERE) or where.startswith(_NOT_WHERE):
                    continue
                for at, value in list(vars(place).items()):
                    if value is before:
                        patch.setattr(place, at, after)


@pytest.fixture(params=WAYS, scope="module")
def native_way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the tests of a module on each way."""
    with pytest.MonkeyPatch.context() as patch:
        take(request.param, patch)
        yield request.param
