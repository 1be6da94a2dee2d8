"""Encodes deletion vectors: the removed rows of a data file, in the form of Delta's protocol.

A file of vectors is a byte 1 and then, for each vector, its size, its bytes and their CRC-32. A
vector is a magic number and a 64-bit roaring bitmap of row positions in the portable format. Sizes
and checksums are big-endian, the magic number is little-endian (Delta transaction log protocol,
"Deletion Vector Format" and "Deletion Vector File Storage Format"). Pure.
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pyroaring import BitMap64

FEATURE = "deletionVectors"

_VERSION = b"\x01"
_MAGIC = struct.pack("<I", 1681511377)
_PYTHON85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85, _FROM_Z85 = str.maketrans(_PYTHON85, _Z85), str.maketrans(_Z85, _PYTHON85)
_ID = 20
"""Characters of a UUID in base 85."""


class VectorError(ValueError):
    """The bytes are not a deletion vector of the form that we write."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The location of a data file's deletion vector."""

    identity: uuid.UUID  # of the file of vectors
    offset: int  # of the vector's size in that file, in bytes
    size: int  # of the vector, in bytes
    rows: int  # how many rows it marks

    def to_json(self, folder: str = "") -> dict[str, Any]:
        """Return the descriptor in the form of the log.

        `folder`: of the file of vectors, relative to the table.
        """
        encoded = base64.b85encode(self.identity.bytes).decode().translate(_TO_Z85)
        return {
            "storageType": "u",
            "pathOrInlineDv": folder + encoded,
            "offset": self.offset,
            "sizeInBytes": self.size,
            "cardinality": self.rows,
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Read a descriptor that `to_json` has written."""
        if raw.get("storageType") != "u":
            raise VectorError(f"a deletion vector is stored as {raw.get('storageType')!r}")
        encoded = raw["pathOrInlineDv"][-_ID:].translate(_FROM_Z85)
        identity = uuid.UUID(bytes=base64.b85decode(encoded))
        return cls(identity, raw["offset"], raw["sizeInBytes"], raw["cardinality"])


def file_name(identity: uuid.UUID) -> str:
    """Return the name of a file of vectors."""
    return f"deletion_vector_{identity}.bin"


def packed(vectors: Mapping[str, BitMap64]) -> tuple[uuid.UUID, bytes, dict[str, Descriptor]]:
    """Put the vectors of some data files into one file of vectors.

    `vectors`: positions of the removed rows, by data file.

    Returns:
        The identity of the new file, its bytes, and the location of each data file's vector.
    """
    identity = uuid.uuid4()
    data = bytearray(_VERSION)
    descriptors = {}
    for name, positions in vectors.items():
        vector = _MAGIC + positions.serialize()
        descriptors[name] = Descriptor(identity, len(data), len(vector), len(positions))
        data += struct.pack(">I", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
    return identity, bytes(data), descriptors


def unpacked(data: bytes, at: Descriptor) -> BitMap64:
    """Read a vector from the bytes of its file."""
    begin = at.offset + 4
    vector = data[begin : begin + at.size]
    if data[:1] != _VERSION or data[at.offset : begin] != struct.pack(">I", at.size):
        raise VectorError(f"there is no vector of {at.size} bytes at offset {at.offset}")
    if data[begin + at.size : begin + at.size + 4] != struct.pack(">I", zlib.crc32(vector)):
        raise VectorError(f"the checksum of the vector at offset {at.offset} is wrong")
    if vector[:4] != _MAGIC:
        raise VectorError(f"the vector at offset {at.offset} has another form")
    positions = BitMap64.deserialize(vector[4:])
    if len(positions) != at.rows:
        raise VectorError(f"a vector of {at.rows} rows marks {len(positions)}")
    return positions
