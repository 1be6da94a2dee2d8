"""Connections to Redis or Valkey, a server or a cluster, and their errors as ours.

Holds nothing but the address, so it can be pickled for executors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

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
from views.base.cache import Connection, connect
from views.sinks.base import UnavailableSinkError

_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class CacheClient:
    """A server, or a cluster by the address of one of its servers.

    Attributes:
        url: its address; user and password may be in it.
        retry_seconds: about how long a busy or absent server is asked again.
    """

    url: str = field(repr=False)
    retry_seconds: float

    @contextmanager
    def client(self) -> Iterator[Connection]:
        """Open a connection; errors inside the block become SinkErrors."""
        pauses = max(1, round(self.retry_seconds / _LONGEST_PAUSE_SECONDS))
        with self._errors():
            client = connect(
                self.url,
                decode_responses=True,
                socket_connect_timeout=5.0,
                socket_timeout=60.0,
                retry=Retry(ExponentialBackoff(_LONGEST_PAUSE_SECONDS, _PAUSE_SECONDS), pauses),
                retry_on_error=[ConnectionError, TimeoutError, BusyLoadingError],
            )
            with client:
                yield client

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
