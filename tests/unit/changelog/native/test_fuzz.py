"""The corpus of `make fuzz` reaches whatever reads bytes from outside; both ways say the same."""

from __future__ import annotations

import re
import sys

import pytest

from changelog.native.headers import HEADER
from tests.fuzz.inputs import CORPUS, corpus
from tests.support.native_ways import needs_c

OF_OURS = {
    # the library, and librdkafka's own words
    "api_stamp",
    "kafka_load",
    "kafka_version",
    "kafka_is_alike",
    "kafka_error_text",
    # records of ours, on their way out
    "producer_new",
    "producer_free",
    "producer_failure",
    "producer_told",
    "producer_tellings",
    "producer_send",
    "producer_send_columns",
    "producer_send_records",
    "producer_poll",
    "producer_flush",
    "producer_purge",
    "producer_queued",
    "producer_transact",
    "fold_hashes",
    # columns in memory, as DuckDB has laid them out
    "sent_hashes",
    "sent_sums",
    # memory that is used again
    "batch_clear",
    "records_clear",
    "texts_clear",
}
"""Functions that read nothing from outside."""


WHERE = ("changelog.native.compiled.", "tests.fuzz.")


class Recorder:
    def __init__(self, library):
        self._library = library
        self.called = set()

    def __getattr__(self, name):
        self.called.add(name)
        return getattr(self._library, name)


@pytest.fixture(scope="module")
def called():
    """Run the whole corpus; return which functions of C it called."""
    from changelog.native.compiled.library import lib
    from tests.fuzz.targets import TARGETS, broker

    recorder = Recorder(lib)
    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith(WHERE) and vars(module).get("lib") is lib:
                patch.setattr(module, "lib", recorder)
        for name, target in TARGETS.items():
            for some in corpus(name):
                target(some)
        broker().close()
        broker.cache_clear()
    return recorder.called


@needs_c
def test_each_function_that_reads_bytes_from_outside_is_reached(called):
    declared = set(re.findall(r"^\w[\w *]*?\b(\w+)\(", HEADER.decode("ascii"), re.MULTILINE))
    assert declared >= OF_OURS
    assert declared - called - OF_OURS == set()


@needs_c
def test_each_target_has_a_corpus():
    from tests.fuzz.targets import TARGETS

    assert {path.stem for path in CORPUS.glob("*.txt")} == set(TARGETS)
