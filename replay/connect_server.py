"""A Spark Connect server that rebuilds can use: a session that others reach through a port.

It is Spark's own server as a plugin of an ordinary session, not its program
`org.apache.spark.sql.connect.service.SparkConnectServer`: that one gives each client Python
processes of its own, which take two seconds to start and stay when the client has gone.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import replace

from changelog.contract.secret import redacted
from replay.session import SessionSettings, session, spark_settings

_PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"
_LOOK_S = 0.2


def with_server(settings: SessionSettings, *, host: str, port: int) -> SessionSettings:
    """Give the settings of a session that serves others too.

    Args:
        settings: of the session.
        host: where it listens; who reaches that may run code of any kind there.
        port: where it listens.
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
    """Give the words behind spark-submit that start such a server elsewhere, without secrets."""
    made = spark_settings(settings)
    jars = made.pop("spark.jars")
    master = made.pop("spark.master")
    words = ["--master", master, "--jars", jars]
    for name, value in made.items():
        words += ["--conf", f"{name}={value}"]
    return redacted(shlex.join(words))


def serve(
    settings: SessionSettings, *, ready: Callable[[], None], stop: Callable[[], bool]
) -> None:
    """Serve until somebody asks to stop.

    Raises:
        ConfigurationError: Spark does not start with these settings.
    """
    spark = session(settings)
    try:
        ready()
        while not stop():
            time.sleep(_LOOK_S)
    finally:
        spark.stop()
