"""A session on a Spark Connect server that runs already: no Spark is started here.

The server must have been started with the settings that a session of our own has. This is checked
before anything is read (`replay.spark.server_look`), and a server that lacks something is refused
with a hint: `changelog spark-server` starts a suitable one.
"""

from __future__ import annotations

import socket
from typing import Any, cast
from urllib.parse import urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from changelog.contract.base.errors import ConfigurationError, UnavailableError
from replay.base.config import CONNECT_PORT
from replay.base.failures import translate
from replay.spark.server_look import PARALLELISM, WantedServer, one_line, settled
from replay.spark.server_token import TOKEN, taken_token

START = "start it with `changelog spark-server`, elsewhere with the words that its --show prints"

_NO_TOKEN = "UNAUTHENTICATED"  # noqa: S105 - what gRPC says
_ASKS_TOKEN = f"it asks for a token: give it by {TOKEN}, or be the user who started the server"
_ANSWER_S = 10


def connected(url: str, server: WantedServer) -> SparkSession:
    """Return the session of this process on the server at `url`, opened at the first call.

    Raises UnavailableError: nobody answers there; ConfigurationError: the server refuses, or lacks
    what a rebuild needs.
    """
    _check_listening(url)
    if (spark_session := _of_this_process()) is not None:
        if _is_alive(spark_session):
            return spark_session
        spark_session.stop()
    try:
        with taken_token(url) as address:
            spark = SparkSession.builder.config("spark.remote", address).getOrCreate()
        return _checked(spark, url, server)
    except PySparkException as error:
        subject = f"the Spark Connect server at {place_of(url)}"
        if _NO_TOKEN in str(error):
            raise ConfigurationError(f"{subject} does not let us in", hint=_ASKS_TOKEN) from error
        if (ours := translate(error)) is not None:
            raise ours from error
        raise ConfigurationError(f"{subject} refuses: {one_line(error)}", hint=START) from error


def _checked(spark: SparkSession, url: str, server: WantedServer) -> SparkSession:
    """Return the session if its server has all that is needed; else end it."""
    try:
        _limit_retries(spark)
        if lacking := settled(spark, server):
            raise ConfigurationError(
                f"the Spark Connect server at {place_of(url)} lacks {'; '.join(lacking)}",
                hint=START,
            )
    except BaseException:
        spark.stop()
        raise
    return spark


def _is_alive(spark: SparkSession) -> bool:
    """Tell whether a checked session still exists: a server that restarts forgets its sessions."""
    try:
        return spark.conf.get(PARALLELISM, None) is not None
    except PySparkException:
        return False


def release() -> None:
    """End the session of this process on its server, and free its memory there."""
    spark = _of_this_process()
    if spark is not None:
        spark.stop()


def interrupt() -> None:
    """Interrupt the jobs of this process on its server."""
    spark = _of_this_process()
    if spark is not None:
        spark.interruptAll()


def _of_this_process() -> SparkSession | None:
    if not is_remote():
        return None
    try:
        return SparkSession.active()
    except PySparkException:
        return None  # there is none, or none any more


def place_of(url: str) -> str:
    """Return host and port of a server, without the token that a URL may hold."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigurationError(f"a Spark master that is no address: {error}") from error
    if not host:
        raise ConfigurationError("a Spark master without a host", hint="it is sc://HOST:PORT")
    return f"{host}:{port or CONNECT_PORT}"


def _check_listening(url: str) -> None:
    """Check that the port accepts connections; Spark's client would retry for ten minutes."""
    host, _, port = place_of(url).rpartition(":")
    try:
        socket.create_connection((host, int(port)), _ANSWER_S).close()
    except OSError as error:
        raise UnavailableError(
            f"no Spark Connect server answers at {host}:{port}: {error.strerror or error}",
            hint=START,
        ) from error


def _limit_retries(spark: SparkSession) -> None:
    """Retry for seconds, not ten minutes: a server that restarts has lost our session anyway."""
    from replay.spark.connect_retries import RetriesWhileThere  # noqa: PLC0415 - needs gRPC

    cast("Any", spark).client.set_retry_policies([RetriesWhileThere()])
