"""Opens connections to Redis or Valkey, a server or a cluster; their errors become SinkErrors.

A client is pickled for executors: with its address and times, without its kept connections.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from redis.backoff import ExponentialBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ConnectionError,  # noqa: A004 - their name
    OutOfMemoryError,
    RedisClusterException,
    RedisError,
    TimeoutError,  # noqa: A004 - their name
)
from redis.retry import Retry

from changelog.contract.base.errors import SinkError
from changelog.contract.base.secret import redacted
from changelog.runtime.cache_servers import Connection, connect, is_cluster
from views.sinks.base import UnavailableSinkError
from views.sinks.kept import KeptConnection

_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0
_CLUSTER_RETRIES = 10
_CLUSTER_ANSWER_SECONDS = 10.0
"""Requests to a cluster are repeated by number alone: its client takes no deadline for them."""


class _PatientRetry(Retry):
    """Repeats a command a number of times, but not after a deadline, as each answer may be slow."""

    def __init__(self, pauses: int, seconds: float) -> None:
        super().__init__(ExponentialBackoff(_LONGEST_PAUSE_SECONDS, _PAUSE_SECONDS), pauses)
        self._seconds = seconds

    def call_with_retry(
        self,
        do: Callable[[], Any],
        fail: Callable[..., Any],
        is_retryable: Callable[[Exception], bool] | None = None,
        with_failure_count: bool = False,
    ) -> Any:  # noqa: ANN401 - theirs
        """Repeat a command until it succeeds, or the time is up."""
        end = time.monotonic() + self._seconds

        def has_time(error: Exception) -> bool:
            return time.monotonic() < end and (is_retryable is None or is_retryable(error))

        # The lowest redis-py in the range does not know it.
        counted = {"with_failure_count": True} if with_failure_count else {}
        return super().call_with_retry(do, fail, has_time, **counted)


@dataclass(frozen=True, slots=True)
class CacheClient:
    """A server, or a cluster by the address of one of its servers."""

    url: str = field(repr=False)  # its address; user and password may be in it
    retry_seconds: float  # about how long requests to a busy or absent server are repeated
    answer_seconds: float = 60.0  # how long it may be silent before a request is repeated
    kept: KeptConnection = field(default_factory=KeptConnection, repr=False, compare=False)

    @contextmanager
    def client(self) -> Iterator[Connection]:
        """Open a connection; errors inside the block become SinkErrors.

        A thread that keeps its connection gets the same one again.
        """
        with self._errors(), self.kept.lent(self._connected) as client:
            yield client

    def _connected(self) -> Connection:
        pauses = max(1, round(self.retry_seconds / _LONGEST_PAUSE_SECONDS))
        answer_seconds = self.answer_seconds
        if is_cluster(self.url):
            pauses = min(pauses, _CLUSTER_RETRIES)
            answer_seconds = min(answer_seconds, _CLUSTER_ANSWER_SECONDS)
        return connect(
            self.url,
            decode_responses=True,
            socket_connect_timeout=5.0,
            socket_timeout=answer_seconds,
            retry=_PatientRetry(pauses, self.retry_seconds),
            retry_on_error=[ConnectionError, TimeoutError, BusyLoadingError],
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        place = f"the cache {redacted(self.url)}"
        try:
            yield
        except AuthenticationError as error:
            raise SinkError(f"{place} refuses the login", hint="check user and password") from error
        except (ConnectionError, TimeoutError) as error:
            raise UnavailableSinkError(
                f"{place} does not answer: {redacted(str(error))}",
                hint="see that it runs, then run it again",
            ) from error
        except OutOfMemoryError as error:
            raise SinkError(
                f"{place} is full", hint="raise its maxmemory or discard old generations"
            ) from error
        except (RedisError, RedisClusterException) as error:
            raise SinkError(f"{place}: {redacted(str(error))}") from error
