"""Retries of requests to a Spark Connect server: for seconds, and only while one may help."""

from __future__ import annotations

from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicyState

_RETRIES = 5
"""Each waits four times as long as the one before it, from 50 ms on: 17 s in all."""


class RetriesWhileThere(DefaultPolicy):
    """Retries requests until one was retried in vain.

    Then the server is gone, or has come back without our session. Up to four requests more are
    made to release what this process had there, and each would wait as long.
    """

    def __init__(self) -> None:
        super().__init__(max_retries=_RETRIES)

    def to_state(self) -> RetryPolicyState:
        """Return the retries of one request."""
        return _RequestRetries(self)


class _RequestRetries(RetryPolicyState):
    def next_attempt(self, *arguments: BaseException | None) -> int | None:
        """Return for how many milliseconds to wait, or None for no attempt more."""
        wait_ms = super().next_attempt(*arguments)
        if wait_ms is None:
            self.policy.max_retries = 0
        return wait_ms
