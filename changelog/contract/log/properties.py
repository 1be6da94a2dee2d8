"""Settings of producer and topics: the ones users may add, and the ones the contract fixes.

A setting that is kept is refused by name: obeyed it would break what readers rely on, and left
out in silence it would surprise whoever gave it. Values never appear in a message; they may be
secrets.
"""

from __future__ import annotations

from collections.abc import Mapping

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.log.topic import LARGEST

RECORD_BYTES = 32 * 1024 * 1024
"""The largest record that the producer takes unasked; a topic's setting usually allows less."""

_NO_LOSS = "a record counts as written when every replica has it, once and in order"
_PLACES = "keys have to lie where other clients look for them"
_OURS = "capture sets it for itself"
_BROKERS = "it is the brokers' address: kafka.brokers, --broker"

PRODUCER_KEPT: Mapping[str, str] = {
    "enable.idempotence": _NO_LOSS,
    "acks": _NO_LOSS,
    "request.required.acks": _NO_LOSS,
    "message.timeout.ms": _NO_LOSS,
    "delivery.timeout.ms": _NO_LOSS,
    "partitioner": _PLACES,
    "delivery.report.only.error": _OURS,
    "on_delivery": _OURS,
    "error_cb": _OURS,
    "log_level": _OURS,
    "transactional.id": _OURS,
    "bootstrap.servers": _BROKERS,
    "metadata.broker.list": _BROKERS,
}
"""Settings of librdkafka's producer that cannot be given, with the reason."""

PRODUCER_BY_TOPIC = frozenset(
    {"request.timeout.ms", "queuing.strategy", "compression.codec", "compression.level"}
)
"""Settings that librdkafka's producer has for each topic, and that Kafka's topics have not."""

_EXACT = "the log could no longer give the exact rows"

TOPIC_KEPT: Mapping[str, str] = {
    "cleanup.policy": _EXACT,
    "message.timestamp.type": _EXACT,
    "max.compaction.lag.ms": _EXACT,
    "unclean.leader.election.enable": _EXACT,
    "min.compaction.lag.ms": "it is capture.min_compaction_lag_ms",
    "delete.retention.ms": "it is capture.delete_retention_ms",
}
"""Settings of a topic that cannot be given, with the reason."""


def check_producer_properties(properties: Mapping[str, str]) -> None:
    """Check that settings of the producer leave the log's contract whole.

    Raises ConfigurationError: some do not; names each with the reason.
    """
    _check(properties, PRODUCER_KEPT, "capture.producer (-C)")


def check_topic_properties(properties: Mapping[str, str]) -> None:
    """Check that settings of new topics leave the log's contract whole.

    Raises ConfigurationError: some do not; names each with the reason.
    """
    _check(properties, {**PRODUCER_KEPT, **TOPIC_KEPT}, "capture.topic (-T)")


def largest_record(properties: Mapping[str, str]) -> int:
    """Return the largest size of a record by a topic's settings, or 0 if they set none.

    Raises ConfigurationError: the setting is no number of bytes.
    """
    text = properties.get(LARGEST, "0")
    if not text.isdecimal():
        raise ConfigurationError(
            f"capture.topic (-T): {LARGEST} is no whole number of bytes", hint="such as 10485760"
        )
    return int(text)


def producer_properties(properties: Mapping[str, str], largest: int) -> dict[str, str]:
    """Return settings of the producer by which it takes records that the topics take.

    Its queue has to hold more than one, or else a record waits for room that there never is.
    """
    if largest <= RECORD_BYTES:
        return dict(properties)
    room = {"message.max.bytes": str(largest), "queue.buffering.max.kbytes": str(largest // 512)}
    return {**room, **properties}


def _check(properties: Mapping[str, str], kept: Mapping[str, str], where: str) -> None:
    refused = [f"{name} ({kept[name]})" for name in properties if name in kept]
    if refused:
        raise ConfigurationError(
            f"{where} cannot set {', '.join(refused)}", hint="leave it out of the settings"
        )


def parse_properties(texts: list[str] | None, option: str) -> dict[str, str] | None:
    """Parse `prop=value` texts of a repeated option; return None if it was not given.

    Raises ConfigurationError: a text has another form; the text itself is not shown.
    """
    if not texts:
        return None
    properties = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigurationError(f"{option} takes name=value, once for each")
        properties[name.strip()] = value.strip()
    return properties
