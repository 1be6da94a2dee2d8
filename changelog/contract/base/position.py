"""The total order of records."""

from __future__ import annotations

import struct
from typing import NamedTuple

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.lsn import Lsn

_LAYOUT = struct.Struct(">IQQ")
POSITION_BYTES = _LAYOUT.size


class Position(NamedTuple):
    """The position of a record: epoch, commit LSN of its transaction, sequence inside it.

    Row LSNs are not unique, so they cannot order records; a commit LSN and a running number of
    the transaction's changes do, and they come out the same when the transaction is sent again.
    An epoch is one unbroken life of a slot. Rows of a snapshot are true at its consistent point
    C and come before everything streamed from C on, so their commit LSN is C - 1.

    The 20-byte form is big-endian: bytes compare as positions do.
    """

    epoch: int
    commit_lsn: Lsn
    sequence: int

    def to_bytes(self) -> bytes:
        """Return the form of the record header: u32 epoch, u64 LSN, u64 sequence, big-endian."""
        return _LAYOUT.pack(self.epoch, self.commit_lsn, self.sequence)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Position:
        """Read the form of the record header.

        Raises ValueError: `raw` does not have 20 bytes.
        """
        if len(raw) != POSITION_BYTES:
            raise ValueError(f"a position has {POSITION_BYTES} bytes, not {len(raw)}")
        epoch, lsn, sequence = _LAYOUT.unpack(raw)
        return cls(epoch, Lsn(lsn), sequence)

    def __str__(self) -> str:
        """Return `epoch:LSN:sequence`, the form of manifests and messages."""
        return f"{self.epoch}:{self.commit_lsn}:{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read `epoch:LSN:sequence`; raises ValueError if the text has another form."""
        epoch, lsn, sequence = text.split(":")
        try:
            return cls(int(epoch), Lsn.parse(lsn), int(sequence))
        except ConfigurationError as error:
            raise ValueError(str(error)) from error
