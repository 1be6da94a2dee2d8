"""Deletion vectors in the bytes of Delta's protocol."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from views.sinks.delta.deletion_vectors import Descriptor, VectorError, file_name, packed, unpacked

rows = st.sets(st.integers(0, 2**34), min_size=1, max_size=60)
dense = st.tuples(st.integers(0, 2**33), st.integers(1, 70_000)).map(
    lambda span: set(range(span[0], sum(span)))
)
vectors = st.dictionaries(st.text(min_size=1, max_size=5), rows | dense, max_size=4)


@given(vectors)
def test_what_is_packed_is_unpacked(found) -> None:
    identity, data, places = packed({name: BitMap64(each) for name, each in found.items()})
    assert data[:1] == b"\x01"
    assert {name: set(unpacked(data, at)) for name, at in places.items()} == found
    assert all(at.identity == identity for at in places.values())
    assert {name: at.rows for name, at in places.items()} == {n: len(r) for n, r in found.items()}


@given(vectors.filter(bool), st.data())
def test_a_byte_that_is_another_is_found(found, data) -> None:
    _, bytes_, places = packed({name: BitMap64(each) for name, each in found.items()})
    at = places[data.draw(st.sampled_from(sorted(places)))]
    place = data.draw(st.integers(at.offset, at.offset + at.size + 7))
    changed = bytearray(bytes_)
    changed[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(VectorError):
        unpacked(bytes(changed), at)
    with pytest.raises(VectorError):
        unpacked(bytes_[:place], at)


@given(st.uuids(), st.integers(1, 2**31), st.integers(1, 2**31), st.integers(1, 2**40))
def test_a_descriptor_is_read_back_from_any_folder(identity, offset, size, count) -> None:
    at = Descriptor(identity, offset, size, count)
    assert Descriptor.from_json(at.to_json()) == at
    assert Descriptor.from_json(at.to_json("_generations/000007/")) == at


def test_the_example_of_the_protocol() -> None:
    identity = uuid.UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")
    told = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 4,
        "sizeInBytes": 40,
        "cardinality": 6,
    }
    at = Descriptor(identity, 4, 40, 6)
    assert at.to_json("ab") == told
    assert Descriptor.from_json(told) == at
    assert file_name(identity) == "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"


def test_a_vector_that_is_kept_in_another_way_is_refused() -> None:
    with pytest.raises(VectorError, match="stored as 'i'"):
        Descriptor.from_json({"storageType": "i", "pathOrInlineDv": "", "sizeInBytes": 1})
