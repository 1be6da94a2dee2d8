"""The receiver of webhooks: what its answers mean, and when an event is sent again.

| answer | what happens |
|---|---|
| 2xx | the event is delivered |
| none, 408, 425, 429, 5xx | it is sent again, later each time, until it is delivered |
| 3xx, 401, 403, 404, 405, 410 | nobody's events are taken there: the command ends |
| other 4xx | this event is refused for good: it is a dead letter |
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from changelog.contract.base.errors import ChangelogError, ConfigurationError
from changelog.contract.base.secret import redacted
from changelog.runtime.tls_trust import authorities
from views.push.events import OutgoingEvent, Signer

log = logging.getLogger("changelog.push")

_ANSWER_S = 15.0
_FIRST_WAIT_S = 0.2
_LONGEST_WAIT_S = 60.0
_MOST_WAIT_S = 3600.0
"""So long a receiver can ask to be left alone at most."""
_LOOK_S = 0.2
_REASON_BYTES = 512
_AGAIN = {408, 425, 429}
_NOBODY = {401, 403, 404, 405, 410}
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


class ReceiverError(ChangelogError):
    """A receiver takes no events at all at this address."""


class StoppedError(Exception):
    """The command was asked to end while an event was on its way."""


class _AwayError(Exception):
    """The receiver does not take the event now; `after_s` is what it asks for."""

    def __init__(self, reason: str, after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.after_s = after_s


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a receiver will never take an event."""

    status: int  # of its answer
    text: str  # the beginning of its answer


def check_url(url: str) -> str:
    """Return the address of a receiver without a password, for people.

    Raises ConfigurationError: it is none, or it holds a password.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigurationError(
            f"--to: {redacted(url)!r} is no address of a receiver", hint="https://HOST/PATH"
        )
    if parts.username or parts.password:
        raise ConfigurationError(
            "--to: a password in an address is seen by everybody",
            hint="receivers know us by the signature",
        )
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        log.warning("%s is not encrypted: others may read the rows", parts.hostname)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"  # a query may hold a token


class Receiver:
    """Delivers events; several threads may."""

    def __init__(self, url: str, signer: Signer, stop: Callable[[], bool]) -> None:
        """Take the address; nothing is sent yet.

        Raises ConfigurationError: as for `check_url`.
        """
        self.shown = check_url(url)
        self._url, self._signer, self._stop = url, signer, stop
        self._client = httpx.Client(timeout=_ANSWER_S, verify=authorities(), follow_redirects=False)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def deliver(self, event: OutgoingEvent) -> Refusal | None:
        """Send an event until the receiver has it; return the reason if it never will.

        Raises ReceiverError: it takes none; StoppedError: it has not got it, and we are to end.
        """
        retrying = Retrying(
            retry=retry_if_exception_type(_AwayError),
            wait=_wait,
            sleep=self._sleep,
            before_sleep=self._say,
        )
        return retrying(self._sent, event)

    def _sent(self, event: OutgoingEvent) -> Refusal | None:
        if self._stop():
            raise StoppedError
        headers = self._signer.headers(event, int(time.time()))
        request = self._client.build_request("POST", self._url, content=event.body, headers=headers)
        try:
            answer = self._client.send(request, stream=True)
        except httpx.TransportError as error:
            raise _AwayError(type(error).__name__) from error
        try:
            return self._judged(answer)
        finally:
            answer.close()

    def _judged(self, answer: httpx.Response) -> Refusal | None:
        status = answer.status_code
        if answer.is_success:
            return None
        if status in _AGAIN or answer.is_server_error:
            raise _AwayError(f"it answers {status}", _asked_s(answer.headers.get("retry-after")))
        if answer.is_redirect or answer.is_informational or status in _NOBODY:
            raise ReceiverError(
                f"{self.shown} answers {status}: it takes no events, and the events stay",
                hint="see that --to is the address itself, to which no redirect is followed, and "
                "that it knows our secret; then begin again",
            )
        return Refusal(status, redacted(_beginning(answer)))

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (remaining_s := until - time.monotonic()) > 0:
            if self._stop():
                raise StoppedError
            time.sleep(min(remaining_s, _LOOK_S))

    def _say(self, state: RetryCallState) -> None:
        number = state.attempt_number
        if number & (number - 1) == 0:  # the 1st, 2nd, 4th, 8th, …
            error = state.outcome.exception() if state.outcome else None
            wait_s = state.upcoming_sleep
            log.warning("%s: %s; sent again in %.1f s", self.shown, error, wait_s)


_backoff: Any = wait_random_exponential(multiplier=_FIRST_WAIT_S, max=_LONGEST_WAIT_S)


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked_s = error.after_s if isinstance(error, _AwayError) else 0.0
    return float(max(asked_s, _backoff(state)))


def _asked_s(text: str | None) -> float:
    """Return the seconds of a header `Retry-After`: a number, or a date."""
    if not text:
        return 0.0
    try:
        seconds = (
            float(text)
            if text.isascii() and text.isdigit()
            else (parsedate_to_datetime(text).timestamp() - time.time())
        )
    except ValueError:
        return 0.0
    return min(max(seconds, 0.0), _MOST_WAIT_S)


def _beginning(answer: httpx.Response) -> str:
    """Return the beginning of an answer, as one line."""
    content = b""
    try:
        for part in answer.iter_raw(_REASON_BYTES):
            content += part
            if len(content) >= _REASON_BYTES:
                break
    except httpx.HTTPError:
        pass  # its status says enough
    return " ".join(content[:_REASON_BYTES].decode("utf-8", "replace").split())
