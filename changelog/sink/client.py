"""Clients of Kafka: their settings, and their errors in our families.

librdkafka prints each failed connection to standard error; its clients are made silent here, and
what matters reaches the user as an error or as one line of our own log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import (
    ConfigurationError,
    RefusedAccessError,
    UnavailableLogError,
)
from changelog.contract.base.secret import redacted
from changelog.kafka.access import Heard, access_hint
from changelog.kafka.errors import Meaning, log_error

REQUEST_S = 15.0
_SOON_S = 10.0
"""Whoever only looks waits so long for brokers."""
WAIT_S = 0.2
T = TypeVar("T")


def make_client(kind: Callable[[dict[str, Any]], T], config: Mapping[str, Any]) -> T:
    """Make a client; it connects in the background.

    Raises:
        ConfigurationError: librdkafka does not know a setting or its value.
    """
    try:
        return kind({**config, "log_level": 0})
    except (KafkaException, ValueError, TypeError) as error:
        inner = error.args[0] if error.args else error
        said = inner.str() if isinstance(inner, KafkaError) else str(inner)
        raise ConfigurationError(
            redacted(f"the options of kafka cannot be used: {said}"),
            hint="they are librdkafka's settings, such as security.protocol",
        ) from None


def admin_client(kafka: KafkaConnection) -> AdminClient:
    """Return an admin client; the caller holds it until its requests are answered."""
    return make_client(AdminClient, kafka.client_config())


def meet(kafka: KafkaConnection, *, patient: bool = True) -> str:
    """Ask who the brokers are: the first request, which shows whether they let us in.

    What goes wrong on connections is told to a callback alone. An admin client is no safe place
    for one (a run of the tests with it ended in `abort`), so a producer, which has nothing to
    send, connects beside it and listens.

    Args:
        kafka: where they are.
        patient: waits for brokers that are not there, since they may be on their way.

    Returns:
        The cluster's identifier.

    Raises:
        RefusedAccessError: none of them does; says why.
        UnavailableLogError: none answers.
        LogError: they refuse.
    """
    heard = Heard()
    listener = make_client(Producer, {**kafka.client_config(), "error_cb": heard})

    def listen() -> None:
        listener.poll(0)
        said = redacted(heard.refusal())
        if said:
            raise RefusedAccessError(
                f"Kafka at {kafka.brokers} does not let us in: {said}", hint=access_hint(said)
            )
        if not patient and heard.absence():
            raise UnavailableLogError(
                f"{what}: {redacted(heard.absence())}", hint=Meaning.AWAY.value.hint
            )

    what = f"no Kafka broker answers at {kafka.brokers}"
    admin = admin_client(kafka)  # held: its requests end with it
    asked = admin.describe_cluster(request_timeout=REQUEST_S if patient else _SOON_S)
    return str(answered(asked, what, listen).cluster_id)


def nothing() -> None:
    """Stand in for a caller that needs nothing while it waits."""


def answered(future: Future[T], what: str, on_wait: Callable[[], None] = nothing) -> T:
    """Wait for an answer of the broker; `on_wait` is called again and again meanwhile.

    Raises:
        UnavailableLogError: it does not answer.
        LogError: it refuses.
    """
    deadline = time.monotonic() + 2 * REQUEST_S
    while not wait([future], timeout=WAIT_S).done:
        on_wait()
        if time.monotonic() > deadline:
            raise UnavailableLogError(f"{what}: no answer from the brokers")
    try:
        return future.result()
    except KafkaException as error:
        raise log_error(error, what) from error


def answered_offset(
    future: Future[ListOffsetsResultInfo], what: str, on_wait: Callable[[], None] = nothing
) -> ListOffsetsResultInfo:
    """Wait for where a partition begins or ends; raises as `answered` does.

    A request that was timed out comes back without an error, with an offset that is none.
    """
    found = answered(future, what, on_wait)
    if found.offset < 0:
        raise UnavailableLogError(f"{what}: no answer from the brokers")
    return found
