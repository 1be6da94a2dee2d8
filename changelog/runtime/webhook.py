"""POST of a JSON object to an address of the user's, again while its server is away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from changelog.contract.base.errors import ChangelogError
from changelog.runtime.tls_trust import authorities

_REQUEST_S = 10
_TRIES = 4
_FIRST_WAIT_S = 0.5


def post(url: str, body: Mapping[str, Any]) -> None:
    """Send the object, again where the server does not answer or says that it cannot now.

    Raises ChangelogError: it answers that it does not take it; httpx.HTTPError: it is away.
    """
    for attempt in Retrying(
        retry=retry_if_exception(_passes),
        stop=stop_after_attempt(_TRIES),
        wait=wait_exponential(multiplier=_FIRST_WAIT_S, max=10),
        reraise=True,
    ):
        with attempt:
            answer = httpx.post(url, json=body, timeout=_REQUEST_S, verify=authorities())
            if not answer.is_success:
                raise _RefusedError(answer.status_code)


class _RefusedError(ChangelogError):
    """The webhook answered, but not well."""

    def __init__(self, status: int) -> None:
        super().__init__(f"it answered {status}")
        self.status = status


def _passes(error: BaseException) -> bool:
    if isinstance(error, _RefusedError):
        return (
            error.status >= httpx.codes.INTERNAL_SERVER_ERROR
            or error.status == httpx.codes.TOO_MANY_REQUESTS
        )
    return isinstance(error, httpx.TransportError)
