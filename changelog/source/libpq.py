"""The replication stream below psycopg2's cursor: raw messages in, raw feedback out.

Why not `ReplicationCursor.read_message`: it swallows keepalives, and on each one, once all that it
delivered has been flushed or nothing has come yet, it raises the flush position by itself to the
server's (`pq_read_replication_message`, psycopg2 2.9.13) and tells the server when asked to
reply. The slot then stands past what is on the log, and a slot that someone moved by hand looks
the same. So the connection is psycopg2's, and the few calls on it are libpq's own, the way that
psycopg2's manual shows for `connection.pgconn_ptr`.
"""

from __future__ import annotations

import ctypes
import select

import psycopg2
from psycopg2 import errorcodes, extensions

from changelog.contract.errors import SlotError, SourceError, UnavailableSourceError

READ_BYTES = 8 << 20
"""Rows can be large: a batch of messages ends behind the one that fills this."""

_COPY_DONE = -1
_FATAL_ERROR = 7  # PGRES_FATAL_ERROR
_SQLSTATE, _PRIMARY = ord("C"), ord("M")
_SLOT_CODES = {
    errorcodes.OBJECT_NOT_IN_PREREQUISITE_STATE,
    errorcodes.OBJECT_IN_USE,
}


def _library() -> ctypes.CDLL:
    # The handle of psycopg2's own extension also finds the symbols of the very libpq that it is
    # linked with; another copy of libpq would not know the layout of its PGconn.
    # PyDLL keeps the interpreter's lock: none of these calls waits.
    library = ctypes.PyDLL(psycopg2._psycopg.__file__)
    pointer, text, integer = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("PQgetCopyData", integer, [pointer, pointer, integer]),
        ("PQputCopyData", integer, [pointer, text, integer]),
        ("PQflush", integer, [pointer]),
        ("PQconsumeInput", integer, [pointer]),
        ("PQsocket", integer, [pointer]),
        ("PQfreemem", None, [pointer]),
        ("PQerrorMessage", text, [pointer]),
        ("PQgetResult", pointer, [pointer]),
        ("PQresultStatus", integer, [pointer]),
        ("PQresultErrorField", text, [pointer, integer]),
        ("PQclear", None, [pointer]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class CopyBoth:
    """A connection that START_REPLICATION has turned into a stream of messages both ways."""

    def __init__(self, connection: extensions.connection) -> None:
        self._connection = connection
        self._libpq = _library()
        self._pgconn = ctypes.c_void_p(connection.pgconn_ptr)
        self._end: SourceError | None = None
        self._poll = select.poll()
        self._poll.register(self._libpq.PQsocket(self._pgconn), select.POLLIN)

    def read(self, limit: int) -> list[bytes]:
        """Give the messages that have arrived, without waiting; at most `limit` or `READ_BYTES`.

        Raises:
            SourceError: the server ended the stream; SlotError, UnavailableSourceError by reason.
        """
        if self._end is not None:
            raise self._end
        get, free, string_at = self._libpq.PQgetCopyData, self._libpq.PQfreemem, ctypes.string_at
        pgconn, buffer = self._pgconn, ctypes.c_void_p()
        reference = ctypes.byref(buffer)
        messages: list[bytes] = []
        append = messages.append
        consumed = False
        room = READ_BYTES
        while len(messages) < limit and room > 0:
            size = get(pgconn, reference, 1)
            if size > 0:
                append(string_at(buffer.value, size))  # type: ignore[arg-type]  # set when size > 0
                free(buffer)
                room -= size
                consumed = False
            elif size < 0:
                self._end = self._ended(size)
                break
            elif consumed:
                break
            elif self._libpq.PQconsumeInput(pgconn):
                consumed = True
            else:
                self._end = UnavailableSourceError(f"the replication connection: {self._said()}")
                break
        if self._end is not None and not messages:
            raise self._end  # else the messages before the end are handed over first
        return messages

    def wait(self, timeout_s: float) -> None:
        """Wait until something arrives, or the timeout is over."""
        self._poll.poll(max(0.0, timeout_s) * 1000)

    def write(self, message: bytes) -> None:
        """Send a message.

        Raises:
            UnavailableSourceError: the connection is lost.
        """
        sent = self._libpq.PQputCopyData(self._pgconn, message, len(message))
        if sent <= 0 or self._libpq.PQflush(self._pgconn) != 0:
            raise UnavailableSourceError(f"the replication connection: {self._said()}")

    def _said(self) -> str:
        raw: bytes = self._libpq.PQerrorMessage(self._pgconn) or b""
        return " ".join(raw.decode("utf-8", "replace").split()) or "it was closed"

    def _ended(self, size: int) -> SourceError:
        if size != _COPY_DONE:
            return UnavailableSourceError(f"the replication connection: {self._said()}")
        result = self._libpq.PQgetResult(self._pgconn)
        if not result:
            return UnavailableSourceError("PostgreSQL ended the replication stream")
        try:
            if self._libpq.PQresultStatus(result) != _FATAL_ERROR:
                return UnavailableSourceError("PostgreSQL ended the replication stream")
            code = (self._libpq.PQresultErrorField(result, _SQLSTATE) or b"").decode()
            said = (self._libpq.PQresultErrorField(result, _PRIMARY) or b"").decode(
                "utf-8", "replace"
            )
        finally:
            self._libpq.PQclear(result)
        return stream_error(code, said or self._said())


def stream_error(code: str, said: str) -> SourceError:
    """Give the error for what the server said about the stream, by its SQLSTATE."""
    what = f"PostgreSQL ended the replication stream: {said}"
    if code in _SLOT_CODES:
        return SlotError(what)
    if not code or code.startswith(("57P", "08")):
        return UnavailableSourceError(what)
    return SourceError(what)
