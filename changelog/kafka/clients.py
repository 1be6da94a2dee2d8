"""Clients of the brokers: how they are made, and how some are kept from one question to the next.

librdkafka prints each failed connection to standard error; its clients are made silent here, and
what matters reaches the user as an error or as one line of our own log.

A client connects, and asks who the brokers are and who leads what, before it is of use: 5 ms of CPU
here, as much on a broker, and 20 to 50 ms until it has answered. Who asks now and then makes a new
one and closes it. A follower asks dozens of questions in each of its rounds, and keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.secret import redacted
from changelog.contract.log.properties import RECORD_BYTES

REQUEST_S = 15.0
"""How long brokers may take to answer a request before they count as away.

A broker that is well answers in milliseconds. One that has died is noticed after 9 seconds
(`broker.session.timeout.ms`), and only then are its partitions given to others.
"""
STALL_S = 60.0
"""How long a read waits for the next sign of progress."""
WAIT_S = 0.2
"""Interval at which a call that waits for brokers calls its `on_wait`."""
READER = "changelog-read"
"""The group of consumers without one: the client demands a name. Nothing is stored for it."""
QUIET = {"log_level": 0}
QUEUE_KBYTES, QUEUE_MESSAGES = 64 * 1024, 200_000
"""Limits of a producer's records that are not acknowledged."""
T = TypeVar("T")


class Client(Protocol):
    """A client that can be closed."""

    def close(self) -> object:
        """Leave the brokers."""


C = TypeVar("C", bound=Client)


def make_client(kind: Callable[[dict[str, Any]], T], config: Mapping[str, Any]) -> T:
    """Make a client; it connects in the background.

    Raises ConfigurationError: librdkafka does not know a setting or its value.
    """
    try:
        return kind({**config, **QUIET})
    except (KafkaException, ValueError, TypeError) as error:
        inner = error.args[0] if error.args else error
        reason = inner.str() if isinstance(inner, KafkaError) else str(inner)
        raise ConfigurationError(
            redacted(f"the options of kafka cannot be used: {reason}"),
            hint="they are librdkafka's settings, such as security.protocol",
        ) from None


def reading_config(
    kafka: KafkaConnection, *, committed: bool = True, **options: str | float
) -> dict[str, Any]:
    """Return the settings of a consumer that reads places of our choice and commits nothing.

    It is told where each partition ends, and of an offset that is not on the log. Options are
    further settings of librdkafka, with underscores for dots.
    """
    defaults = {"group_id": READER, "fetch_wait_max_ms": 10, "fetch_queue_backoff_ms": 10}
    config = kafka.client_config(
        enable_auto_commit=False,
        enable_auto_offset_store=False,
        enable_partition_eof=True,
        isolation_level="read_committed" if committed else "read_uncommitted",
        auto_offset_reset="error",
        **options,
    )
    return {**{name.replace("_", "."): value for name, value in defaults.items()}, **config}


def reading_consumer(
    kafka: KafkaConnection, *, committed: bool = True, **options: float
) -> Consumer:
    """Make a consumer with the settings of `reading_config`."""
    return make_client(Consumer, reading_config(kafka, committed=committed, **options))


def writing_config(
    kafka: KafkaConnection,
    options: Mapping[str, Any] | None = None,
    *,
    wait_s: float = 0,
    linger_ms: int = 1,
) -> dict[str, Any]:
    """Return the settings of a producer that loses and doubles nothing, and reports only errors.

    What is promised stays, whatever the options are. The brokers are waited for, for ever at 0. The
    connection's options may say how long a batch lingers.
    """
    return {
        "compression.type": "lz4",
        # See docs/decisions: below, the broker is asked too often; above, a change waits.
        "linger.ms": linger_ms,
        "batch.size": 1_000_000,
        "queue.buffering.max.kbytes": QUEUE_KBYTES,
        "queue.buffering.max.messages": QUEUE_MESSAGES,
        # How large a record may be is the topic's business, whose refusal is noticed.
        "message.max.bytes": RECORD_BYTES,
        **kafka.client_config(),
        **(options or {}),
        **QUIET,
        "enable.idempotence": True,
        "acks": "all",
        "message.timeout.ms": round(1000 * wait_s),
        "delivery.report.only.error": True,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptKafka(KafkaConnection):
    """A connection whose clients are kept until it is closed.

    It is for one process: others are given the connection that it was made of.
    """

    _kept: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, kafka: KafkaConnection) -> Self:
        """Return the same connection, with nothing kept yet."""
        return cls(brokers=kafka.brokers, options=kafka.options)

    def close(self) -> None:
        """Close the clients."""
        while self._kept:
            self._forget(next(iter(self._kept)))

    def _forget(self, name: str) -> None:
        client = self._kept.pop(name, None)
        # An admin client leaves by itself when nobody has it any more.
        if client is not None and not isinstance(client, AdminClient):
            client.close()


@contextmanager
def admin_client(kafka: KafkaConnection) -> Iterator[AdminClient]:
    """Lend a client for questions about the cluster; see `lent`."""

    def make() -> AdminClient:
        return make_client(AdminClient, kafka.client_config())

    if isinstance(kafka, KeptKafka):
        with _kept(kafka, "admin", make) as client:
            yield client
    else:
        yield make()


@contextmanager
def lent(kafka: KafkaConnection, name: str, make: Callable[[], C]) -> Iterator[C]:
    """Lend a client: the kept one, or a new one that is closed afterwards.

    Of one name only one thread may ask at a time.
    """
    if isinstance(kafka, KeptKafka):
        with _kept(kafka, name, make) as client:
            yield client
    else:
        with closing(make()) as client:
            yield client


@contextmanager
def _kept(kafka: KeptKafka, name: str, make: Callable[[], T]) -> Iterator[T]:
    """Lend a kept client, and replace it after an error: a new one has no outdated metadata.

    Offsets, for one, are asked for under the epoch of the leader that a client knows.
    """
    if name not in kafka._kept:
        kafka._kept[name] = make()
    client: T = kafka._kept[name]
    try:
        yield client
    except BaseException:
        kafka._forget(name)
        raise
