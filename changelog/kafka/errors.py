"""Meaning of the brokers' errors: error class, sentence and hint, one table for all clients.

The table has for each code of librdkafka the class of the error, the sentence that says what
happened, and the hint. The class decides the exit code of a command, and whether a retry may
succeed. All clients of the brokers (capture, readers of lines, rebuilds, sinks on topics, locks)
raise the errors that are made here, or a class of their own family.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from confluent_kafka import KafkaError, KafkaException

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import LogError, RefusedAccessError, UnavailableLogError
from changelog.contract.base.secret import redacted
from changelog.kafka.access import access_hint, refusal


@dataclass(frozen=True, slots=True)
class ErrorStanding:
    """Meaning of an error for the caller."""

    error: type[LogError]  # its family: one that passes is an `UnavailableLogError`
    sentence: str  # what happened; `{at}` stands for the brokers
    hint: str  # what to do about it

    @property
    def passes(self) -> bool:
        """Tell whether the same request may succeed later, perhaps with a new client."""
        return issubclass(self.error, UnavailableLogError)


class ErrorMeaning(Enum):
    """The meanings that an error of the brokers can have."""

    AWAY = ErrorStanding(
        UnavailableLogError,
        "no Kafka broker answers{at}",
        "start the brokers, or correct the address or [kafka.options]",
    )
    BUSY = ErrorStanding(
        UnavailableLogError,
        "Kafka{at} cannot do it now",
        "see how the brokers are, then run it again",
    )
    SESSION_LOST = ErrorStanding(
        UnavailableLogError,
        "Kafka{at} does not know the producer any more",
        "run it again: a new producer goes on",
    )
    NOT_LET_IN = ErrorStanding(RefusedAccessError, "Kafka{at} does not let us in", "")
    FORBIDDEN = ErrorStanding(
        LogError,
        "Kafka{at} does not allow it",
        "the brokers' ACLs say what the user of [kafka.options] may do: topics, groups, "
        "transactions",
    )
    OVERTAKEN = ErrorStanding(
        LogError,
        "another process writes in its place",
        "let one process write it, then run it again",
    )
    MISSING = ErrorStanding(
        LogError,
        "Kafka{at} has no such topic or partition",
        "it was removed, or has another name: `changelog topics` lists those of the log",
    )
    TOO_LARGE = ErrorStanding(
        LogError,
        "Kafka{at} takes no record of that size",
        "raise max.message.bytes of the topic, or make rows smaller",
    )
    REFUSED = ErrorStanding(LogError, "Kafka{at} refuses", "the brokers' own log says more")

    @property
    def passes(self) -> bool:
        """Tell whether the same request may succeed later, perhaps with a new client."""
        return self.value.passes


_CODES: Mapping[ErrorMeaning, tuple[int, ...]] = {
    ErrorMeaning.AWAY: (
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
    ),
    ErrorMeaning.BUSY: (
        # How librdkafka says that no partition has a leader, as while a broker registers again.
        KafkaError._NOENT,
        KafkaError._RETRY,
        KafkaError._WAIT_CACHE,
        KafkaError._WAIT_COORD,
        KafkaError._ISR_INSUFF,
        KafkaError._QUEUE_FULL,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.NOT_CONTROLLER,
        KafkaError.STALE_CTRL_EPOCH,
        KafkaError.STALE_BROKER_EPOCH,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
        KafkaError.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        KafkaError.LISTENER_NOT_FOUND,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.FETCH_SESSION_ID_NOT_FOUND,
        KafkaError.INVALID_FETCH_SESSION_EPOCH,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.REASSIGNMENT_IN_PROGRESS,
        KafkaError.REBOOTSTRAP_REQUIRED,
    ),
    ErrorMeaning.SESSION_LOST: (
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.TRANSACTION_ABORTABLE,
    ),
    ErrorMeaning.NOT_LET_IN: (
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
        KafkaError.DELEGATION_TOKEN_EXPIRED,
        KafkaError.DELEGATION_TOKEN_NOT_FOUND,
    ),
    ErrorMeaning.FORBIDDEN: (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ),
    ErrorMeaning.OVERTAKEN: (
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    ),
    ErrorMeaning.MISSING: (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    ),
    ErrorMeaning.TOO_LARGE: (
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG_SIZE,
    ),
}
MEANINGS: Mapping[int, ErrorMeaning] = MappingProxyType(
    {code: meaning for meaning, codes in _CODES.items() for code in codes}
)
"""The table; a code that is not in it is refused, unless librdkafka says that it may be retried."""


def meaning(error: KafkaError) -> ErrorMeaning:
    """Return the meaning of an error."""
    listed = MEANINGS.get(error.code())
    if listed is not None:
        return listed
    return ErrorMeaning.BUSY if error.retriable() else ErrorMeaning.REFUSED


def is_passing(error: KafkaError) -> bool:
    """Tell whether the same request may succeed later, perhaps with a new client."""
    return meaning(error).passes


def is_waited_for(error: KafkaError) -> bool:
    """Tell whether a client goes on by itself once the brokers can: an event that ends no read."""
    return meaning(error) in {ErrorMeaning.AWAY, ErrorMeaning.BUSY}


def is_missing(error: BaseException | KafkaError | None) -> bool:
    """Tell whether an error of confluent-kafka says that a topic is missing."""
    inner = cause_of(error)
    return inner is not None and meaning(inner) is ErrorMeaning.MISSING


def is_forbidden(error: BaseException | KafkaError | None) -> bool:
    """Tell whether an error of confluent-kafka says that the user lacks a right."""
    inner = cause_of(error)
    return inner is not None and meaning(inner) is ErrorMeaning.FORBIDDEN


def cause_of(error: BaseException | KafkaError | None) -> KafkaError | None:
    """Return the KafkaError inside an error, if there is one."""
    inner = error.args[0] if isinstance(error, KafkaException) and error.args else error
    return inner if isinstance(inner, KafkaError) else None


def log_error(
    error: KafkaException | KafkaError,
    failure: str = "",
    *,
    kafka: KafkaConnection | None = None,
    hint: str = "",
) -> LogError:
    """Return an error of the brokers as one of ours, by what it means.

    A request of a client that is not let in is never refused: it is never answered. So where nobody
    answers, brokers that are given are asked once more why. `failure` was being done; it is empty
    where there is nothing to say but what the brokers did. A hint is in place of the table's.
    """
    at = "" if kafka is None else f" at {kafka.brokers}"
    inner = cause_of(error)
    if inner is None:
        return LogError(
            _sentence(failure, ErrorMeaning.REFUSED.value.sentence, at, str(error)), hint=hint
        )
    means, reason = meaning(inner), inner.str()
    if means is ErrorMeaning.AWAY and kafka is not None and (why := refusal(kafka)):
        means, reason = ErrorMeaning.NOT_LET_IN, why
    message = _sentence(failure, means.value.sentence, at, reason)
    kind: type[LogError] = means.value.error
    return kind(message, hint=hint or means.value.hint or access_hint(message))


@contextmanager
def explained(failure: str = "", *, kafka: KafkaConnection | None = None) -> Iterator[None]:
    """Raise errors of the brokers inside the block as `log_error` returns them."""
    try:
        yield
    except KafkaException as error:
        raise log_error(error, failure, kafka=kafka) from error


def _sentence(failure: str, sentence: str, at: str, reason: str) -> str:
    is_said = sentence.format(at="") in failure
    parts = (failure, "" if is_said else sentence.format(at=at), reason)
    return redacted(": ".join(part for part in parts if part))
