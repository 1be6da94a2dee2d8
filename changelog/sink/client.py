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
    LogError,
    RefusedAccessError,
    UnavailableLogError,
)
from changelog.contract.base.secret import redacted

REQUEST_S = 15.0
_SOON_S = 10.0
"""Whoever only looks waits so long for brokers."""
WAIT_S = 0.2
_AWAY_HINT = "are the brokers running, the address right?"
T = TypeVar("T")

_AWAY = {
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    # How librdkafka says that no partition has a leader, as while a broker registers again.
    KafkaError._NOENT,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_CONTROLLER,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}
_NOT_LET_IN = {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
}
_FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_ALERT = "SSL alert"  # what the broker's own refusal of a certificate looks like
_UNTOLD_S = 3.0
"""After this time without an answer, connections that end without a word are a refusal, and those
that do not come about say that nobody is there."""
_SILENT_S = 8.0
"""Who ends a connection without a word does so at once. Later it was librdkafka's patience that
ended it (`api.version.request.timeout.ms`, 10 s): a network that swallows packets, for one."""
_SESSION_LOST = {
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaError.UNKNOWN_PRODUCER_ID,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
    KafkaError._FENCED,
}


def is_passing(error: KafkaError) -> bool:
    """Tell whether the same request may succeed later, perhaps with a new client."""
    return error.code() in _AWAY | _SESSION_LOST or error.retriable()


def is_missing(error: BaseException | None) -> bool:
    """Tell whether an error of confluent-kafka says that there is no such topic."""
    inner = error.args[0] if isinstance(error, KafkaException) and error.args else None
    return isinstance(inner, KafkaError) and inner.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def log_error(error: KafkaException | KafkaError, what: str, *, hint: str = "") -> LogError:
    """Turn an error of confluent-kafka into ours, by whether waiting may help."""
    inner = error.args[0] if isinstance(error, KafkaException) and error.args else error
    if not isinstance(inner, KafkaError):
        return LogError(redacted(f"{what}: {error}"), hint=hint)
    said = redacted(f"{what}: {inner.str()}")
    if inner.code() in _NOT_LET_IN:
        return RefusedAccessError(said, hint=hint or _access_hint(said))
    if inner.code() in _FORBIDDEN:
        return LogError(said, hint=hint or "look at the user and the options of kafka")
    if is_passing(inner):
        return UnavailableLogError(said, hint=hint or _AWAY_HINT)
    return LogError(said, hint=hint)


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


def _access_hint(said: str) -> str:
    if "certificate verify failed" in said:
        return (
            "ssl.ca.location has to hold the authority of the brokers' certificate, and that has "
            "to name the host that is connected to"
        )
    if _ALERT in said:
        return "the brokers want a client's certificate: ssl.certificate.location, ssl.key.location"
    if "SASL" in said:
        return "look at sasl.mechanism, sasl.username and sasl.password in [kafka.options]"
    return "look at security.protocol and the other [kafka.options]"


class _Heard:
    """What went wrong on a client's connections; no request's answer tells it, only a timeout."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._refusal = ""
        self._absence = ""
        self._all_down_at: float | None = None

    def __call__(self, error: KafkaError) -> None:
        said = error.str()
        if error.code() in _NOT_LET_IN or _ALERT in said:
            self._refusal = said
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            now = time.monotonic()
            self._all_down_at = self._all_down_at or now
            if now - self._begun > _SILENT_S and not self._absence:
                self._absence = "it takes connections and says nothing"
        else:
            self._absence = said

    def refusal(self) -> str:
        """Say why no broker lets us in; empty while one may."""
        if self._all_down_at is None:
            return ""
        untold = not self._absence and self._is_down_for_long()
        return self._refusal or ("the connection is ended without a word" if untold else "")

    def absence(self) -> str:
        """Say why no broker is there; empty while one may be."""
        return self._absence if self._is_down_for_long() else ""

    def _is_down_for_long(self) -> bool:
        down = self._all_down_at
        return down is not None and time.monotonic() - down > _UNTOLD_S


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
    heard = _Heard()
    listener = make_client(Producer, {**kafka.client_config(), "error_cb": heard})

    def listen() -> None:
        listener.poll(0)
        said = redacted(heard.refusal())
        if said:
            raise RefusedAccessError(
                f"Kafka at {kafka.brokers} does not let us in: {said}", hint=_access_hint(said)
            )
        if not patient and heard.absence():
            raise UnavailableLogError(f"{what}: {redacted(heard.absence())}", hint=_AWAY_HINT)

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
