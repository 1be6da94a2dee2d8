"""The replication stream below psycopg2's cursor: raw messages in, raw feedback out.

Why not `ReplicationCursor.read_message`: it swallows keepalives, and on each one, once all that it
delivered has been flushed or nothing has come yet, it raises the flush position by itself to the
server's (`pq_read_replication_message`, psycopg2 2.9.13) and tells the server when asked to
reply. The slot then stands past what is on the log, and a slot that someone moved by hand looks
the same. So the connection is psycopg2's, and the few calls on it are libpq's own, the way that
psycopg2's manual shows for `connection.pgconn_ptr`.
"""

from __future__ import annotations

import select

import cffi
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


_FFI = cffi.FFI()
_FFI.cdef(
    """
    typedef struct pg_conn PGconn;
    typedef struct pg_result PGresult;
    int PQgetCopyData(PGconn *conn, char **buffer, int async);
    int PQputCopyData(PGconn *conn, const char *buffer, int size);
    int PQflush(PGconn *conn);
    int PQconsumeInput(PGconn *conn);
    int PQsocket(const PGconn *conn);
    void PQfreemem(void *memory);
    char *PQerrorMessage(const PGconn *conn);
    PGresult *PQgetResult(PGconn *conn);
    int PQresultStatus(const PGresult *result);
    char *PQresultErrorField(const PGresult *result, int field);
    void PQclear(PGresult *result);
    """
)
# The handle of psycopg2's own extension also finds the symbols of the very libpq that it is
# linked with; another copy of libpq would not know the layout of its PGconn.
_LIBPQ = _FFI.dlopen(psycopg2._psycopg.__file__)


def _text(raw: object) -> str:
    """Give what a C string says, on one line; empty for none."""
    return " ".join(_FFI.string(raw).decode("utf-8", "replace").split()) if raw else ""


class CopyBoth:
    """A connection that START_REPLICATION has turned into a stream of messages both ways."""

    def __init__(self, connection: extensions.connection) -> None:
        self._connection = connection
        self._pgconn = _FFI.cast("PGconn *", connection.pgconn_ptr)
        self._buffer = _FFI.new("char **")
        self._end: SourceError | None = None
        self._poll = select.poll()
        self._poll.register(_LIBPQ.PQsocket(self._pgconn), select.POLLIN)

    def read(self, limit: int) -> list[bytes]:
        """Give the messages that have arrived, without waiting; at most `limit` or `READ_BYTES`.

        Raises:
            SourceError: the server ended the stream; SlotError, UnavailableSourceError by reason.
        """
        if self._end is not None:
            raise self._end
        get, free, unpack = _LIBPQ.PQgetCopyData, _LIBPQ.PQfreemem, _FFI.unpack
        pgconn, buffer = self._pgconn, self._buffer
        messages: list[bytes] = []
        append = messages.append
        consumed = False
        room = READ_BYTES
        while len(messages) < limit and room > 0:
            size = get(pgconn, buffer, 1)
            if size > 0:
                found = buffer[0]
                append(unpack(found, size))
                free(found)
                room -= size
                consumed = False
            elif size < 0:
                self._end = self._ended(size)
                break
            elif consumed:
                break
            elif _LIBPQ.PQconsumeInput(pgconn):
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
        sent = _LIBPQ.PQputCopyData(self._pgconn, message, len(message))
        if sent <= 0 or _LIBPQ.PQflush(self._pgconn) != 0:
            raise UnavailableSourceError(f"the replication connection: {self._said()}")

    def _said(self) -> str:
        return _text(_LIBPQ.PQerrorMessage(self._pgconn)) or "it was closed"

    def _ended(self, size: int) -> SourceError:
        if size != _COPY_DONE:
            return UnavailableSourceError(f"the replication connection: {self._said()}")
        result = _LIBPQ.PQgetResult(self._pgconn)
        if not result:
            return UnavailableSourceError("PostgreSQL ended the replication stream")
        try:
            if _LIBPQ.PQresultStatus(result) != _FATAL_ERROR:
                return UnavailableSourceError("PostgreSQL ended the replication stream")
            code = _text(_LIBPQ.PQresultErrorField(result, _SQLSTATE))
            said = _text(_LIBPQ.PQresultErrorField(result, _PRIMARY))
        finally:
            _LIBPQ.PQclear(result)
        return stream_error(code, said or self._said())


def stream_error(code: str, said: str) -> SourceError:
    """Give the error for what the server said about the stream, by its SQLSTATE."""
    what = f"PostgreSQL ended the replication stream: {said}"
    if code in _SLOT_CODES:
        return SlotError(what)
    if not code or code.startswith(("57P", "08")):
        return UnavailableSourceError(what)
    return SourceError(what)
