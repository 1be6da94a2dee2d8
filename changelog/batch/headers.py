"""Headers of many records."""

from __future__ import annotations

import numpy as np

from changelog.batch.fields import Places
from changelog.contract.position import POSITION_BYTES

_LAYOUT = np.dtype([("epoch", ">u4"), ("lsn", ">u8"), ("sequence", ">u8")])


def position_headers(epoch: int, lsn: Places | int, sequence: Places) -> list[bytes]:
    """Give the `position` header of each record, as `Position.to_bytes` does."""
    positions = np.empty(len(sequence), dtype=_LAYOUT)
    positions["epoch"], positions["lsn"], positions["sequence"] = epoch, lsn, sequence
    raw = positions.tobytes()
    return [raw[at : at + POSITION_BYTES] for at in range(0, len(raw), POSITION_BYTES)]
