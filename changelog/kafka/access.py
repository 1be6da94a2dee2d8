"""Why no broker answers: none is there, or they do not let us in.

No request's answer tells it, only a timeout; what goes wrong on connections is told to a callback.
"""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, KafkaException, Producer

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.secret import redacted

ASKED_S = 6.0
"""The longest that brokers are listened to for why they do not answer."""
_LOOK_S = 0.2
_NOT_LET_IN = {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
}
_ALERT = "SSL alert"  # what the broker's own refusal of a certificate looks like
_UNTOLD_S = 3.0
"""After this time without an answer, connections that end without a word are a refusal, and those
that do not come about say that nobody is there."""
_SILENT_S = 8.0
"""Who ends a connection without a word does so at once. Later it was librdkafka's patience that
ended it (`api.version.request.timeout.ms`, 10 s): a network that swallows packets, for one."""


class ClientErrors:
    """Errors on a client's connections, as its `error_cb` reports them."""

    def __init__(self) -> None:
        """Begin to listen now."""
        self._begun = time.monotonic()
        self._refusal = ""
        self._absence = ""
        self._all_down_at: float | None = None

    def __call__(self, error: KafkaError) -> None:
        """Keep the message of an error that refuses access."""
        message = error.str()
        if error.code() in _NOT_LET_IN or _ALERT in message:
            self._refusal = message
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            now = time.monotonic()
            self._all_down_at = self._all_down_at or now
            if now - self._begun > _SILENT_S and not self._absence:
                self._absence = "it takes connections and says nothing"
        else:
            self._absence = message

    def refusal(self) -> str:
        """Return the reason that every broker refuses the login; empty while one may accept."""
        if self._all_down_at is None:
            return ""
        untold = not self._absence and self._is_down_for_long()
        return self._refusal or ("the connection is ended without a word" if untold else "")

    def absence(self) -> str:
        """Return the reason that no broker answers; empty while one may."""
        return self._absence if self._is_down_for_long() else ""

    @property
    def is_nobody_there(self) -> bool:
        """Tell whether every connection failed, and none because we were not let in."""
        return bool(self._all_down_at and self._absence and not self._refusal)

    def _is_down_for_long(self) -> bool:
        down = self._all_down_at
        return down is not None and time.monotonic() - down > _UNTOLD_S


def refusal(kafka: KafkaConnection, patience_s: float = ASKED_S) -> str:
    """Connect, and say why no broker lets us in; empty where one does, or nobody is there."""
    heard = ClientErrors()
    config = {**kafka.client_config(), "error_cb": heard, "log_level": 0}
    try:
        listener = Producer(config)
    except (KafkaException, ValueError, TypeError):
        return ""  # its settings cannot be used, which whoever asked has been told
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline and not heard.is_nobody_there:
        try:
            listener.list_topics(timeout=_LOOK_S)
        except KafkaException:
            listener.poll(0)
        else:
            return ""
        if why := heard.refusal():
            return redacted(why)
    return ""


def access_hint(message: str) -> str:
    """Return the settings to check where brokers do not let us in."""
    if "certificate verify failed" in message:
        return (
            "ssl.ca.location has to hold the authority of the brokers' certificate, and that has "
            "to name the host that is connected to"
        )
    if _ALERT in message:
        return "the brokers want a client's certificate: ssl.certificate.location, ssl.key.location"
    if "SASL" in message:
        return "look at sasl.mechanism, sasl.username and sasl.password in [kafka.options]"
    return "look at security.protocol and the other [kafka.options]"
