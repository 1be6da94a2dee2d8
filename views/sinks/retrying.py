"""Repeat requests that a server refuses for a while."""

from __future__ import annotations

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential


def retrying(error: type[Exception], seconds: float, first: float, most: float) -> Retrying:
    """Return a function that repeats an action while it fails with this error, for some seconds.

    The pauses grow from `first` to `most` seconds; the last error is raised.
    """
    return Retrying(
        retry=retry_if_exception_type(error),
        stop=stop_after_delay(seconds),
        wait=wait_random_exponential(multiplier=first, max=most),
        reraise=True,
    )
