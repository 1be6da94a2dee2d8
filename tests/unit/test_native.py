"""The compiled library is there, and says what Python says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.log.partition import partition_of
from changelog.native import library


@given(st.binary(max_size=40), st.integers(1, 2**31 - 1))
def test_a_key_has_the_same_partition(key, partitions):
    assert library.lib.partition_of(key, len(key), partitions) == partition_of(key, partitions)


def test_a_package_without_its_library_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(library, "_FOLDER", tmp_path)
    with pytest.raises(ConfigurationError, match="compiled part") as missing:
        library._path()
    assert "compiler" in missing.value.hint


def test_a_library_of_other_declarations_is_not_used(monkeypatch):
    monkeypatch.setattr(library, "_HEADER", library._HEADER + b"/* of tomorrow */")
    with pytest.raises(ConfigurationError, match="older or newer") as other:
        library._opened(library._path())
    assert "install" in other.value.hint


def test_the_functions_of_the_client_are_found_or_named(tmp_path):
    absent = str(tmp_path / "absent.so").encode()
    assert library.ffi.string(library.lib.kafka_load(absent)) == absent
    # Any library that has nothing of Kafka's.
    said = library.lib.kafka_load(str(library._path()).encode())
    assert library.ffi.string(said).startswith(b"rd_kafka_")
