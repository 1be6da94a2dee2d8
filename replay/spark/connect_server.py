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
# Between two looks at whether somebody has asked to stop.
_LOOK_S = 0.2


def with_server(settings: SessionSettings, *, host: str, port: int) -> SessionSettings:
    """Return the settings of a session that serves other processes too.

    `host`: the address that it listens at; whoever reaches it may run any code there.
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
    """Serve the clients that have the token until asked to stop.

    `ready`: called once it serves, with the file of the token if one was made here. `stop`: tells
    whether to end.

    Raises ConfigurationError: the port is taken, or Spark does not start with these settings.
    """
    _check_free(host, port)
    # The daemon of Python workers starts in this folder, whose modules it must not import.
    os.environ.update(SAFE_PATH)
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

    A Java that is still starting ends with this process, because its input is closed then.
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
    """Check the port before Spark does, which takes seconds and fails with a Java error."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen at {host}:{port}: {error.strerror or error}",
            hint="end the program that does, or choose another --port or --host",
        ) from error
