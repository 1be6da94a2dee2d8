"""The replication stream: payloads in, standby status out."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping
from typing import Self

import psycopg2
from psycopg2 import sql
from psycopg2.extensions import quote_ident
from psycopg2.extras import LogicalReplicationConnection

from changelog.contract.base.errors import UnavailableSourceError
from changelog.contract.base.headers import POSTGRES_EPOCH_US
from changelog.contract.base.lsn import Lsn
from changelog.native import Texts
from changelog.native.libpq import CopyBoth
from changelog.runtime.process.silence import SILENCE_S
from changelog.source.connect.connect import connect_replication
from changelog.source.connect.versions import SENDS_MESSAGES
from changelog.source.stream.pgoutput import PLUGIN_OPTIONS
from changelog.source.stream.slot import slot_error

_BUSY = 100  # messages at once that tell of more to come
_NAPS, _NAP_S = 4, 0.002
_PACE_S = 0.003


class ReadPace:
    """Spaces the rounds of a reader, for many small transactions at once: a round has its price."""

    def __init__(self) -> None:
        self._until = 0.0

    def wait(self) -> None:
        """Wait until the next round may begin."""
        remaining_s = self._until - time.monotonic()
        if remaining_s > 0:
            time.sleep(remaining_s)

    def gather(self, payloads: Texts, limit: int, read: Callable[[], object]) -> None:
        """Wait until a busy server has filled the socket: one large batch costs less than many.

        `read` adds what has arrived; gives something false where nothing has.
        """
        if len(payloads) < _BUSY:
            return
        for _ in range(_NAPS):
            if len(payloads) >= limit // 2:
                break
            time.sleep(_NAP_S)
            if not read():
                break

    def ended(self, payloads: Texts) -> None:
        """Note the payloads of a round."""
        self._until = time.monotonic() + _PACE_S if len(payloads) else 0.0


_ASK_AFTER = 1 / 3  # of `SILENCE_S`: old servers say nothing while they decode for nobody
_DEAF_S = 2.0  # a caller that comes back later was busy elsewhere
_STATUS_LAYOUT = struct.Struct(">cQQQqB")


class Silence:
    """For how long a server has said nothing to somebody who listened (pure)."""

    def __init__(self, now_s: float) -> None:
        self._since = self._listened = now_s
        self._has_asked = False

    def after(self, now_s: float, *, heard: bool) -> float:
        """Note that somebody has listened; return for how many seconds nothing was heard.

        What comes while nobody listens, as while the broker is waited for, is not heard at once:
        that time does not count.
        """
        if heard or now_s - self._listened > _DEAF_S:
            self._since, self._has_asked = now_s, False
        self._listened = now_s
        return now_s - self._since

    def may_ask(self) -> bool:
        """Tell, once in a silence, that it is time to ask."""
        has_asked, self._has_asked = self._has_asked, True
        return not has_asked


class ReplicationStream:
    """One slot's stream, from `start_lsn` on.

    The acknowledged position starts at `start_lsn` and moves by `acknowledge` alone: no reply to
    the server ever carries a higher one. It goes out at once when it moves, when the server asks,
    and each `status_interval` seconds as long as someone calls `poll` or `send_status`; a caller
    that is blocked elsewhere calls `send_status`, so that `wal_sender_timeout` does not strike.
    """

    def __init__(
        self, connection: LogicalReplicationConnection, start_lsn: Lsn, status_interval: float = 5.0
    ) -> None:
        """Read a connection on which the stream was started at `start_lsn`: see `open`."""
        # how far the server has decoded, from its keepalives; 0 before the first. Every transaction
        # whose commit record begins before it is among the payloads that `poll` has returned so
        # far, or concerned nothing that is published. So once these are all handled *and* no
        # transaction is open, it is a valid frontier although nothing arrived: that is how an idle
        # database moves on. With a transaction open it must not be used, since that transaction's
        # records lie before the offsets of the cut. Payloads carry no such promise; their own WAL
        # positions may go back
        self.server_wal_end = Lsn(0)
        self.acknowledged = start_lsn  # the position that the server is told
        self._status_interval = status_interval
        self._connection = connection
        self._copy = CopyBoth(connection)
        self._payloads = Texts()
        self._last_status = 0.0
        self._pace = ReadPace()
        self._silence = Silence(time.monotonic())

    @classmethod
    def open(
        cls,
        dsn: str,
        *,
        slot: str,
        publication: str,
        start_lsn: Lsn,
        status_interval: float = 5.0,
        application_name: str = "changelog",
        connection: LogicalReplicationConnection | None = None,
        options: Mapping[str, str] = PLUGIN_OPTIONS,
    ) -> Self:
        """Connect, or take the connection that made a temporary slot, and start the slot's stream.

        PostgreSQL silently starts at the slot's own position when that is later than
        `start_lsn`: compare with `inspect_slot` first.

        Raises:
            UnavailableSourceError: no server answers.
            SlotBusyError: another process reads the slot.
            SlotError: the slot does not exist, or is lost.
        """
        connection = connection or connect_replication(dsn, application_name=application_name)
        try:
            _start(connection, slot, publication, start_lsn, options)
        except psycopg2.Error as error:
            connection.close()
            raise slot_error(error, f'cannot read the slot "{slot}"') from error
        stream = cls(connection, start_lsn, status_interval)
        stream.send_status(force=True)
        return stream

    def poll(self, timeout_s: float, limit: int = 4000) -> Texts:
        """Return the payloads that have arrived, in order, for `pgoutput.decode`; at most `limit`.

        Waits up to `timeout_s` for something to arrive, then gives none. A keepalive also ends
        the wait, since `server_wal_end` may have moved. What is given is gone with the next call.

        Raises:
            UnavailableSourceError: the connection is lost, or the server silent for `SILENCE_S`.
            SlotError: the slot was lost under way.
            ProtocolError: a message is neither data nor keepalive.
        """
        self.send_status()
        self._pace.wait()
        payloads = self._payloads
        payloads.clear()
        heard = self._copy.read(limit, payloads)
        if not heard:
            self._copy.wait(min(timeout_s, self.status_due_s()))
            heard = self._copy.read(limit, payloads)
        self._notice(heard=bool(heard))
        self._pace.gather(payloads, limit, lambda: self._copy.read(limit, payloads))
        self._note_keepalives()
        self._pace.ended(payloads)
        return payloads

    def read(self, into: Texts, limit: int) -> bool:
        """Add what has arrived, without waiting, up to `limit`; tell whether anything has.

        For a caller that waits itself, on `fileno`; raises what `poll` does.
        """
        heard = bool(self._copy.read(limit, into))
        self._notice(heard=heard)
        self._note_keepalives()
        return heard

    def fileno(self) -> int:
        """Return the number of the connection's socket."""
        return self._copy.fileno()

    def status_due_s(self) -> float:
        """Return in how many seconds the next status is due."""
        return self._last_status + self._status_interval - time.monotonic()

    def ask(self) -> None:
        """Ask the server for its WAL position; a keepalive answers.

        Raises UnavailableSourceError: the connection is lost.
        """
        self._send_status(ask=True)

    def _note_keepalives(self) -> None:
        self.server_wal_end = Lsn(self._copy.server_wal_end)
        if self._copy.is_asked:
            self.send_status(force=True)

    def _notice(self, *, heard: bool) -> None:
        """Ask a silent server for a sign of life, and give it up when none comes."""
        silent_s = self._silence.after(time.monotonic(), heard=heard)
        if silent_s > SILENCE_S:
            raise UnavailableSourceError(
                f"PostgreSQL has said nothing on the replication connection for {silent_s:.0f} s",
                hint="does the server hang, or a proxy before it?",
            )
        if silent_s > SILENCE_S * _ASK_AFTER and self._silence.may_ask():
            self._send_status(ask=True)

    def acknowledge(self, lsn: Lsn) -> None:
        """Tell PostgreSQL that WAL before `lsn` may go; an earlier position changes nothing.

        Raises UnavailableSourceError: the connection is lost.
        """
        if lsn > self.acknowledged:
            self.acknowledged = lsn
            self.send_status(force=True)

    def send_status(self, *, force: bool = False) -> None:
        """Repeat the acknowledged position when the interval is over, or at once.

        Raises UnavailableSourceError: the connection is lost.
        """
        now = time.monotonic()
        if not force and now < self._last_status + self._status_interval:
            return
        self._last_status = now
        self._send_status()

    def _send_status(self, *, ask: bool = False) -> None:
        lsn = self.acknowledged
        clock = time.time_ns() // 1000 - POSTGRES_EPOCH_US
        self._copy.write(_STATUS_LAYOUT.pack(b"r", lsn, lsn, lsn, clock, ask))

    def close(self) -> None:
        """End the stream; the slot stays."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _start(
    connection: LogicalReplicationConnection,
    slot: str,
    publication: str,
    start_lsn: Lsn,
    plugin: Mapping[str, str],
) -> None:
    cursor = connection.cursor()
    # The server splits this list at commas, and takes double quotes for odd names.
    names = quote_ident(publication, connection)
    options = {**plugin, "publication_names": names}
    if connection.server_version < SENDS_MESSAGES:
        options.pop("messages", None)
    command = sql.SQL("START_REPLICATION SLOT {} LOGICAL {} ({})").format(
        sql.Identifier(slot),
        sql.SQL(str(start_lsn)),
        sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(name), sql.Literal(value))
            for name, value in options.items()
        ),
    )
    text = command.as_string(connection)
    cursor.start_replication_expert(text)  # type: ignore[no-untyped-call]
