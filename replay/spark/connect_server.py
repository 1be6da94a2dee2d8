"""A Spark Connect server that rebuilds can use: a session that others reach through a port.

It is Spark's own server as a plugin of an ordinary session, not its program
`org.apache.spark.sql.connect.service.SparkConnectServer`: that one gives each client Python
processes of its own, which take two seconds to start and stay when the client has gone.
"""

from __future__ import annotations

import os
import shlex
import socket
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.secret import redacted
from changelog.runtime.imports import SAFE_PATH
from replay.spark.server_token import SETTING, served_token
from replay.spark.session import SessionSettings, session, spark_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"
_LOOK_S = 0.2


def with_server(settings: SessionSettings, *, host: str, port: int) -> SessionSettings:
    """Return the settings of a session that serves others too.

    `host`: where it listens; who reaches that may run code of any kind there.
    """
    plugins = [settings.extra["spark.plugins"]] if "spark.plugins" in settings.extra else []
    extra = {
        **settings.extra,
        "spark.plugins": ",".join([*plugins, _PLUGIN]),
        "spark.connect.grpc.binding.address": host,
        "spark.connect.grpc.binding.port": str(port),
    }
    return replace(settings, extra=extra)


def shown(settings: SessionSettings) -> str:
    """Return the arguments of spark-submit that start this server, without secrets."""
    all_settings = spark_settings(settings)
    jars = all_settings.pop("spark.jars")
    master = all_settings.pop("spark.master")
    words = ["--master", master, "--jars", jars]
    for name, value in all_settings.items():
        words += ["--conf", f"{name}={value}"]
    return redacted(shlex.join(words))


def serve(
    settings: SessionSettings,
    *,
    host: str,
    port: int,
    ready: Callable[[Path | None], None],
    stop: Callable[[], bool],
) -> None:
    """Serve who has the token until somebody asks to stop.

    `ready`: is told in which file the token is, when it was made here.

    Raises ConfigurationError: the port is taken, or Spark does not start with these settings.
    """
    _check_free(host, port)
    os.environ.update(SAFE_PATH)  # the daemon of Python workers starts in this folder
    own = SETTING in settings.extra
    with nullcontext() if own else served_token(port) as place:
        spark = _started(settings, stop)
        if spark is None:
            return
        try:
            if not stop():
                ready(place)
            while not stop():
                time.sleep(_LOOK_S)
        finally:
            spark.stop()


def _started(settings: SessionSettings, stop: Callable[[], bool]) -> SparkSession | None:
    """Start the session; return None if asked to stop before it has started.

    What is half started ends with this process: Java waits for its input to be closed.
    """
    outcome: list[SparkSession | BaseException] = []

    def start() -> None:
        try:
            outcome.append(session(settings))
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            outcome.append(error)

    thread = threading.Thread(target=start, name="spark", daemon=True)
    thread.start()
    while thread.is_alive() and not stop():
        thread.join(_LOOK_S)
    if not outcome:
        return None
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def _check_free(host: str, port: int) -> None:
    """Ask for the port before Spark does, which takes seconds and tells it in Java's words."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen at {host}:{port}: {error.strerror or error}",
            hint="end the program that does, or choose another --port or --host",
        ) from error
