"""Messages of a COPY stream from libpq, in the library's own memory."""

from __future__ import annotations

from typing import Any

from changelog.native.base.reading import Read
from changelog.native.compiled.buffers import Texts
from changelog.native.compiled.library import lib


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
    return Read(lib.read_stream(libpq, connection, limit, most, into.raw, status))


def read_copy(
    libpq: Any,  # noqa: ANN401
    connection: Any,  # noqa: ANN401
    *,
    limit: int,
    most: int,
    into: Texts,
) -> Read:
    """Read lines of a COPY, waiting for them; without their line feeds. Else as `read_stream`."""
    return Read(lib.read_copy(libpq, connection, limit, most, into.raw))
