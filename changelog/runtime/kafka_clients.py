"""Clients of the brokers that are kept from one question to the next.

A client connects, and asks who the brokers are and who leads what, before it is of use: 5 ms of CPU
here, as much on a broker, and 20 to 50 ms until it has answered. Who asks now and then makes a new
one and lets it go. A follower asks dozens of questions in each of its rounds, and keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, TypeVar

from confluent_kafka.admin import AdminClient

from changelog.contract.base.connection import KafkaConnection

QUIET = {"log_level": 0}
"""Else a client notes each failed connection on standard error."""
T = TypeVar("T")


class Client(Protocol):
    """A client that can be closed."""

    def close(self) -> object:
        """Leave the brokers."""


C = TypeVar("C", bound=Client)


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

    def _forget(self, what: str) -> None:
        client = self._kept.pop(what, None)
        # An admin client leaves by itself when nobody has it any more.
        if client is not None and not isinstance(client, AdminClient):
            client.close()


@contextmanager
def admin_client(kafka: KafkaConnection) -> Iterator[AdminClient]:
    """Lend a client for questions about the cluster; see `lent`."""

    def make() -> AdminClient:
        return AdminClient({**kafka.client_config(), **QUIET})

    if isinstance(kafka, KeptKafka):
        with _kept(kafka, "admin", make) as client:
            yield client
    else:
        yield make()


@contextmanager
def lent(kafka: KafkaConnection, what: str, make: Callable[[], C]) -> Iterator[C]:
    """Lend a client: the kept one, or a new one that is closed afterwards.

    Args:
        kafka: the brokers.
        what: names it among those that are kept; of one name only one thread may ask at a time.
        make: gives a new one.
    """
    if isinstance(kafka, KeptKafka):
        with _kept(kafka, what, make) as client:
            yield client
    else:
        with closing(make()) as client:
            yield client


@contextmanager
def _kept(kafka: KeptKafka, what: str, make: Callable[[], T]) -> Iterator[T]:
    """Lend a kept client, and replace it after an error: a new one has no outdated metadata.

    Offsets, for one, are asked for under the epoch of the leader that a client knows.
    """
    if what not in kafka._kept:
        kafka._kept[what] = make()
    client: T = kafka._kept[what]
    try:
        yield client
    except BaseException:
        kafka._forget(what)
        raise
