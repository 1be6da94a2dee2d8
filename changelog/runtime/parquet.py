"""Parquet files that are in memory."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq


def table_of(data: bytes) -> pa.Table:
    """Return the rows of a file, from its bytes.

    They are copied to memory of Arrow's: one of its threads may release the last part of a file
    when this process ends already. If that is an object of Python's, the thread asks for the
    interpreter, which ends it, and the process with it (`terminate called`).
    """
    buffer = pa.allocate_buffer(len(data))
    pa.FixedSizeBufferWriter(buffer).write(data)
    return pq.read_table(pa.BufferReader(buffer))
