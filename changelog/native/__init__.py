"""All that speaks to C: rows, reader, fold, producer, libpq; and the way without it.

Messages of the stream and ranges of topics come in, records go out, many at a time. Source, sink,
capture and the tasks of replay may import it. It exports the classes of `protocols`, in C
(`compiled`) or in Python (`plain`); `choice` says which. Work that is done for each record is in C:
plain functions over memory, called once a batch. The sources are in `src`, and the functions that
Python may call are declared in `src/api.h`. No rule of the log exists in C alone: each function
repeats one in Python, and tests compare the two.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from changelog.native.compiled.buffers import Records as Records
    from changelog.native.compiled.buffers import Texts as Texts
    from changelog.native.compiled.buffers import WrittenPlaces as WrittenPlaces
    from changelog.native.compiled.buffers import read_copy as read_copy
    from changelog.native.compiled.buffers import read_stream as read_stream
    from changelog.native.compiled.fold import Fold as Fold
    from changelog.native.compiled.fold import RangeReader as RangeReader
    from changelog.native.compiled.fold import text_hashes as text_hashes
    from changelog.native.compiled.intake import Intake as Intake
    from changelog.native.compiled.intake import RecordColumns as RecordColumns
    from changelog.native.compiled.intake import RowDecoder as RowDecoder
    from changelog.native.compiled.kafka import BatchReader as BatchReader
    from changelog.native.compiled.kafka import ProducerHandle as ProducerHandle
    from changelog.native.compiled.loads import Batch as Batch
    from changelog.native.compiled.loads import BatchRange as BatchRange
    from changelog.native.compiled.loads import CsvLines as CsvLines
    from changelog.native.compiled.loads import JsonLines as JsonLines
    from changelog.native.compiled.loads import RowCopier as RowCopier
    from changelog.native.compiled.rows import BatchCodec as BatchCodec
    from changelog.native.compiled.rows import Run as Run

NAMES = {
    "buffers": ("Records", "Texts", "WrittenPlaces", "read_copy", "read_stream"),
    "fold": ("Fold", "RangeReader", "text_hashes"),
    "intake": ("Intake", "RecordColumns", "RowDecoder"),
    "kafka": ("BatchReader", "ProducerHandle"),
    "loads": ("Batch", "BatchRange", "CsvLines", "JsonLines", "RowCopier"),
    "rows": ("BatchCodec", "Run"),
}
"""Classes and functions by their module, which has the same name in C and in Python."""
_MODULES = {name: module for module, names in NAMES.items() for name in names}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a class or a function
    """Return a class or function, in C or in Python; its module is imported at the first use.

    Raises ConfigurationError: C is required and not available.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from changelog.native.choice import IS_COMPILED  # noqa: PLC0415 - the build has no library yet

    package = "compiled" if IS_COMPILED else "plain"
    chosen = getattr(import_module(f"{__name__}.{package}.{_MODULES[name]}"), name)
    globals()[name] = chosen
    return chosen
