"""Keys that are told apart by hashes of many tasks."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.native_ways import WAYS, on
from views.sinks.topic import records
from views.sinks.topic.records import KeyHashes, are_distinct

pytestmark = pytest.mark.usefixtures("native_way")


def texts(keys):
    ends = array("i", [0, *np.cumsum([len(key) for key in keys], dtype=np.int32).tolist()])
    return memoryview(ends), memoryview(b"".join(keys))


def told(*parts, seed=7):
    hashes = KeyHashes(seed)
    for part in parts:
        hashes.add(texts(part))
    return hashes.to_bytes()


@given(st.lists(st.lists(st.binary(max_size=20), max_size=6), max_size=4))
def test_keys_are_distinct_where_a_set_says_so(tasks):
    keys = [key for task in tasks for key in task]
    assert are_distinct(told(task) for task in tasks) == (len(set(keys)) == len(keys))


def test_keys_of_several_batches_and_tasks_are_compared():
    assert are_distinct([told([b"a"], [b"b"]), told([b"c"]), told()])
    assert not are_distinct([told([b"a"], [b"b"]), told([b"b"])])
    assert not are_distinct([told([b"a"], [b"a"])])


def test_hashes_that_cannot_be_compared_say_nothing(monkeypatch):
    assert not are_distinct([told([b"a"]), told([b"b"], seed=8)])
    assert not are_distinct([told([b"a"]), None])
    monkeypatch.setattr(records, "_MOST", 2)
    assert told([b"a", b"b", b"c"]) is None
    assert not are_distinct([told([b"a"]), told([b"b"])])


def test_ways_that_hash_otherwise_are_told_apart():
    if len(WAYS) == 1:
        pytest.skip("there is one way alone")
    probes = {on(way, "text_hashes")(7, texts([b"probe"])) for way in WAYS}
    assert len(probes) == 2
