"""The replication stream below psycopg2's cursor: raw messages in, raw feedback out.

Why not `ReplicationCursor.read_message`: it hides keepalives, and on each one, once everything that
it delivered has been flushed or nothing has come yet, it raises the flush position by itself to the
server's (`pq_read_replication_message`, psycopg2 2.9.13) and reports it when the server asks for a
reply. The slot would then be past the end of the log, and could not be told from a slot that
someone moved by hand. So the connection is psycopg2's, and the few calls on it are libpq's own, as
psycopg2's manual shows for `connection.pgconn_ptr`.
"""

from __future__ import annotations

import select
from collections.abc import Iterator

import psycopg2
from psycopg2 import errorcodes, errors, extensions

from changelog.contract.base.errors import (
    ProtocolError,
    SlotError,
    SourceError,
    UnavailableSourceError,
)
from changelog.native import Texts, read_copy, read_stream
from changelog.native.headers import api, declared
from changelog.native.records import NO_MEMORY, Read
from changelog.runtime.process.silence import watched

READ_BYTES = 8 << 20
"""A batch of messages ends with the one that reaches this size, since rows can be large."""

_COMMAND_OK, _COPY_OUT, _FATAL_ERROR = 1, 3, 7  # of ExecStatusType
_SQLSTATE, _PRIMARY = b"CM"
_CONNECTION_LOST: str = errorcodes.CONNECTION_FAILURE
_SLOT_CODES = {
    errorcodes.OBJECT_NOT_IN_PREREQUISITE_STATE,
    errorcodes.OBJECT_IN_USE,
}


_OWN, _FFI = api(), declared("libpq")
# The handle of psycopg2's own extension also finds the symbols of the very libpq that it is
# linked with; another copy of libpq would not know the layout of its PGconn.
_LIBPQ = _FFI.dlopen(psycopg2._psycopg.__file__)
_FUNCTIONS = _OWN.new(
    "libpq *",
    [
        _OWN.cast(kind, _FFI.addressof(_LIBPQ, name))
        for name, kind in (
            ("PQgetCopyData", "int (*)(void *, char **, int)"),
            ("PQconsumeInput", "int (*)(void *)"),
            ("PQfreemem", "void (*)(void *)"),
        )
    ],
)


def _line(raw: object) -> str:
    """Return a C string on one line; empty for a null pointer."""
    return " ".join(_FFI.string(raw).decode("utf-8", "replace").split()) if raw else ""


class CopyBoth:
    """A connection after START_REPLICATION: a stream of messages in both directions."""

    def __init__(self, connection: extensions.connection) -> None:
        self._connection = connection
        self._pgconn = _FFI.cast("PGconn *", connection.pgconn_ptr)
        self._status = _OWN.new("keepalives *")
        self._end: SourceError | None = None
        self._poll = select.poll()
        self._poll.register(self.fileno(), select.POLLIN)

    def fileno(self) -> int:
        """Return the number of the connection's socket."""
        return int(_LIBPQ.PQsocket(self._pgconn))

    @property
    def server_wal_end(self) -> int:
        """Return the position in the latest keepalive; 0 before the first."""
        return int(self._status.wal_end)

    @property
    def is_asked(self) -> bool:
        """Tell whether the server has asked for a reply since the last call."""
        is_asked, self._status.reply = bool(self._status.reply), 0
        return is_asked

    def read(self, limit: int, into: Texts) -> int:
        """Add the payloads that have arrived, without waiting, up to `limit` or `READ_BYTES`.

        Returns:
            The number of messages that have come, with keepalives.

        Raises:
            SourceError: the server ended the stream; SlotError, UnavailableSourceError by reason.
            ProtocolError: a message is neither data nor keepalive.
        """
        if self._end is not None:
            raise self._end
        heard = self._status.heard
        done = read_stream(
            _FUNCTIONS, self._pgconn, limit=limit, most=READ_BYTES, into=into, status=self._status
        )
        count = int(self._status.heard - heard)
        if done == Read.ODD:
            raise ProtocolError("the replication stream sends what is neither data nor keepalive")
        if done == Read.NO_MEMORY:
            raise MemoryError(NO_MEMORY)
        if done == Read.LOST:
            self._end = UnavailableSourceError(f"the replication connection: {self._message()}")
        elif done != Read.ALL:
            self._end = self._ended(is_done=done == Read.ENDED)
        if self._end is not None and not count:
            raise self._end  # after messages before the end the next call raises it
        return count

    def wait(self, timeout_s: float) -> None:
        """Wait until something arrives, or the timeout is over."""
        self._poll.poll(max(0.0, timeout_s) * 1000)

    def write(self, message: bytes) -> None:
        """Send a message.

        Raises UnavailableSourceError: the connection is lost.
        """
        sent = _LIBPQ.PQputCopyData(self._pgconn, message, len(message))
        if sent <= 0 or _LIBPQ.PQflush(self._pgconn) != 0:
            raise UnavailableSourceError(f"the replication connection: {self._message()}")

    def _message(self) -> str:
        return _line(_LIBPQ.PQerrorMessage(self._pgconn)) or "it was closed"

    def _ended(self, *, is_done: bool) -> SourceError:
        if not is_done:
            return UnavailableSourceError(f"the replication connection: {self._message()}")
        result = _LIBPQ.PQgetResult(self._pgconn)
        if not result:
            return UnavailableSourceError("PostgreSQL ended the replication stream")
        try:
            if _LIBPQ.PQresultStatus(result) != _FATAL_ERROR:
                return UnavailableSourceError("PostgreSQL ended the replication stream")
            code = _line(_LIBPQ.PQresultErrorField(result, _SQLSTATE))
            message = _line(_LIBPQ.PQresultErrorField(result, _PRIMARY))
        finally:
            _LIBPQ.PQclear(result)
        return stream_error(code, message or self._message())


def stream_error(code: str, message: str) -> SourceError:
    """Return the error for the end of the stream, by the server's SQLSTATE and message."""
    sentence = f"PostgreSQL ended the replication stream: {message}"
    if code in _SLOT_CODES:
        return SlotError(sentence)
    if not code or code.startswith(("57P", "08")):
        return UnavailableSourceError(sentence)
    if code == errorcodes.UNDEFINED_OBJECT:
        return SourceError(
            sentence,
            hint="what was written while the publication was missing, or had another name, cannot "
            "be decoded any more, though it may be there now: "
            "drop the slot with `changelog slot drop`; the next start takes a fresh snapshot",
        )
    return SourceError(sentence)


def check_single(connection: extensions.connection, query: str) -> None:
    """Have the server parse a statement without running it.

    Raises psycopg2.Error: it is not a statement, or more than one, or names something unknown.
    """
    pgconn = _FFI.cast("PGconn *", connection.pgconn_ptr)
    with watched(connection):
        result = _LIBPQ.PQprepare(pgconn, b"", query.encode(), 0, _FFI.NULL)
        _raise_error(pgconn, result, _COMMAND_OK)


def copy_lines(
    connection: extensions.connection, query: str, *, most_rows: int, most_bytes: int
) -> Iterator[Texts]:
    """Run a COPY … TO STDOUT; yields its lines without their line feeds, many at a time.

    The lines are valid until the next ones are asked for. A caller that stops before the end leaves
    the connection in the middle of the COPY, and has to close it.

    Raises:
        psycopg2.Error: PostgreSQL refuses, with its code; or the connection is lost.
        ProtocolError: it sends something other than lines.
    """
    pgconn = _FFI.cast("PGconn *", connection.pgconn_ptr)
    with watched(connection):
        _raise_error(pgconn, _LIBPQ.PQexec(pgconn, query.encode()), _COPY_OUT)
    lines = Texts()
    done = Read.ALL
    while done == Read.ALL:
        lines.clear()
        with watched(connection):
            done = read_copy(_FUNCTIONS, pgconn, limit=most_rows, most=most_bytes, into=lines)
        if done == Read.ODD:
            raise ProtocolError("PostgreSQL sends a row of COPY that is not a line")
        if done == Read.NO_MEMORY:
            raise MemoryError(NO_MEMORY)
        if len(lines):
            yield lines
    with watched(connection):
        while result := _LIBPQ.PQgetResult(pgconn):
            _raise_error(pgconn, result, _COMMAND_OK)
    if done == Read.FAILED:
        raise _error(_CONNECTION_LOST, _line(_LIBPQ.PQerrorMessage(pgconn)))


def _raise_error(pgconn: object, result: object, expected: int) -> None:
    """Free a result; raise its error if it does not have the expected status."""
    try:
        if result and _LIBPQ.PQresultStatus(result) == expected:
            return
        code = _line(_LIBPQ.PQresultErrorField(result, _SQLSTATE)) if result else ""
        message = _line(_LIBPQ.PQresultErrorField(result, _PRIMARY)) if result else ""
    finally:
        if result:
            _LIBPQ.PQclear(result)
    # An error without a code is libpq's own: the server is gone. psycopg2 has not seen it, so it
    # does not mark the connection as closed.
    message = message or _line(_LIBPQ.PQerrorMessage(pgconn)) or "the connection is lost"
    raise _error(code or _CONNECTION_LOST, message)


def _error(code: str, message: str) -> psycopg2.Error:
    error = _error_of(code)(message)
    # The only way to set the code of psycopg2's errors; pickle uses it too.
    error.__setstate__({"pgcode": code, "pgerror": message})  # type: ignore[no-untyped-call]
    return error


def _error_of(code: str) -> type[psycopg2.Error]:
    try:
        kind: type[psycopg2.Error] = errors.lookup(code)
    except KeyError:
        return psycopg2.OperationalError
    return kind
