"""Messages of a COPY stream from libpq, one by one."""

from __future__ import annotations

from typing import Any

from changelog.native.base.declarations import ffi
from changelog.native.base.reading import Read
from changelog.native.plain.buffers import Texts

_DATA_HEADER, _KEEPALIVE_BYTES, _COPY_DONE = 25, 18, -1


def read_stream(
    libpq: Any,  # noqa: ANN401 - a struct of cffi's, as the next ones
    connection: Any,  # noqa: ANN401
    *,
    limit: int,
    most: int,
    into: Texts,
    status: Any,  # noqa: ANN401
) -> Read:
    """Read the payloads that have arrived on a replication connection, without waiting.

    Args:
        libpq: the library's `libpq`.
        connection: of libpq.
        limit: of messages.
        most: of bytes; reads no more once there are so many.
        into: where they go.
        status: the library's `keepalives`, kept up to date.
    """
    is_consumed = False
    while len(into) < limit and into.size < most:
        size, message = _next(libpq, connection, wait=False)
        if size > 0:
            if not _take(message, into, status):
                return Read.ODD
            is_consumed = False
        elif size < 0:
            return Read.ENDED if size == _COPY_DONE else Read.FAILED
        elif is_consumed:
            break
        elif not libpq.consume_input(connection):
            return Read.LOST
        else:
            is_consumed = True
    return Read.ALL


def read_copy(
    libpq: Any,  # noqa: ANN401
    connection: Any,  # noqa: ANN401
    *,
    limit: int,
    most: int,
    into: Texts,
) -> Read:
    """Read lines of a COPY, waiting for them; without their line feeds. Else as `read_stream`."""
    while len(into) < limit and into.size < most:
        size, line = _next(libpq, connection, wait=True)
        if size < 0:
            return Read.ENDED if size == _COPY_DONE else Read.FAILED
        if line.find(b"\n") != len(line) - 1:
            return Read.ODD
        into.add(line[:-1])
    return Read.ALL


def _next(libpq: Any, connection: Any, *, wait: bool) -> tuple[int, bytes]:  # noqa: ANN401
    buffer = ffi.new("char **")
    size = libpq.get_copy_data(connection, buffer, not wait)
    if size <= 0:
        return size, b""
    message = bytes(ffi.buffer(buffer[0], size))
    libpq.free_memory(buffer[0])
    return size, message


def _take(message: bytes, into: Texts, status: Any) -> bool:  # noqa: ANN401
    status.heard += 1
    if message[:1] == b"w" and len(message) > _DATA_HEADER:
        into.add(message[_DATA_HEADER:])
        return True
    if message[:1] != b"k" or len(message) != _KEEPALIVE_BYTES:
        return False
    status.wal_end = max(status.wal_end, int.from_bytes(message[1:9], "big"))
    status.reply |= message[-1] != 0
    return True
