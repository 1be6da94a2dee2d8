"""Check before reading that a Spark Connect server was started with what we need.

That is: settings that no session can change, the jars, the warehouse, and on its executors the
options of Java and the same version of this code. Settings that a session can change are set.
"""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.avro.functions import from_avro

from changelog.contract.base.secret import redacted
from replay.base.failures import translate
from replay.spark.files import marked
from replay.spark.package import fingerprint

PARALLELISM = "spark.sql.leafNodeDefaultParallelism"
"""How many tasks run at once; only the server's context knows, and no client can ask it."""
EXTENSIONS = "spark.sql.extensions"

_CORRECTIONS = {
    # The hash join of this optimization takes -0.0 and 0.0 for two numbers.
    "spark.sql.optimizeNullAwareAntiJoin": "false",
}
_MAJOR = re.compile(r"(\d+)\.\d+")
_JAVA = frozenset({"spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"})
_UTC = frozenset({"UTC", "Z", "GMT", "UCT", "Zulu", "Etc/UTC", "Etc/GMT", "Etc/UCT", "Etc/Zulu"})
_ROWS = 1024
"""Rows of the job that checks the executors: more than there are cores, so that each gets some."""
_NO_PLACE = "PATH_NOT_FOUND"
_TASKS = "replay.scan.task"
"""Imported by its name on executors, since this package may not import a later one."""
_FACTS = "part int, zone string, properties string, lacks string"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedServer:
    """The requirements of a session on a server."""

    # ours and the user's, by Spark's names. A session can set some; the server must have been
    # started with the others
    settings: Mapping[str, str]
    properties: Mapping[str, str]  # of each executor's Java, which must run in UTC too
    warehouse: str | None  # where the server writes and this process reads; None if not used


def settled(spark: SparkSession, server: WantedServer) -> list[str]:
    """Set what a session can set, and return what its server lacks, each as a phrase.

    Raises ConfigurationError: the warehouse cannot be written here; PySparkException: the server
    refuses a request.
    """
    settings = {**corrections(spark.version), **server.settings}
    lacking = lacking_version(spark.version) + _apply_settings(spark, settings)
    lacking += _missing_jars(spark)
    if not lacking:
        with _marker(server.warehouse) as marker:
            lacking = _check_executors(spark, server, marker)
    return lacking


def lacking_version(there: str) -> list[str]:
    """Return the error about a server's version; any minor version of our major one will do.

    Spark Connect's protocol stays compatible within a major version. If such a server computes
    something differently, the proof of the view finds it.
    """
    match = _MAJOR.match(there)
    major = pyspark.__version__.partition(".")[0]
    if match is not None and match[1] == major:
        return []
    return [f"Spark {major}, of any minor version; it is {there}"]


def corrections(version: str) -> dict[str, str]:
    """Return the settings that make an older version of Spark give the same rows as 4.2."""
    return _CORRECTIONS if version.startswith(("4.0.", "4.1.")) else {}


def _apply_settings(spark: SparkSession, settings: Mapping[str, str]) -> list[str]:
    """Set what a session can set; return what the server was not started with."""
    there = spark.conf.getAll
    differ = {name: value for name, value in settings.items() if not _has(there, name, value)}
    fixed = sorted(name for name in differ if not spark.conf.isModifiable(name))
    for name in differ.keys() - fixed:
        spark.conf.set(name, differ[name])
    changes = redacted("; ".join(f"{name}={differ[name]}" for name in fixed))
    return [f"settings that no session can change: {changes}"] if fixed else []


def _has(there: Mapping[str, str | None], name: str, value: str) -> bool:
    """Tell whether a server has a setting; of one that is a list, whether it has all our items."""
    present = there.get(name)
    if present is None:
        return False
    if name == EXTENSIONS:
        return set(value.split(",")) <= set(present.split(","))
    if name in _JAVA:
        return set(value.split()) <= set(present.split())
    return present == value


def _missing_jars(spark: SparkSession) -> list[str]:
    """Make the server load classes of its jars; return the jars that are missing."""

    def avro() -> DataFrame:
        return spark.range(0).select(from_avro(F.lit(bytearray()), '"string"'))

    def delta() -> DataFrame:
        return spark.read.format("delta").load(f"/nowhere-{uuid.uuid4().hex}")

    frames = {"spark-avro": avro, "delta-spark": delta}
    faults = {jar: _read_fault(frame) for jar, frame in frames.items()}
    return [f"the jar {jar}: {fault}" for jar, fault in faults.items() if fault is not None]


def _read_fault(frame: Callable[[], DataFrame]) -> str | None:
    """Return the reason why the server cannot read, or None; that a path is missing is no fault."""
    try:
        frame().schema  # noqa: B018 - this asks the server
    except PySparkException as error:
        if translate(error) is not None:  # the server is ending
            raise
        return None if error.getCondition() == _NO_PLACE else one_line(error)
    return None


def _server_sees(spark: SparkSession, path: str) -> bool:
    """Tell whether a file of this machine is there for the server too."""
    try:
        spark.read.text(path).schema  # noqa: B018 - this asks the server
    except PySparkException as error:
        if error.getCondition() == _NO_PLACE:
            return False
        raise
    return True


@contextmanager
def _marker(warehouse: str | None) -> Iterator[str | None]:
    """Yield a file in the warehouse, or None if that is a URI; it is there while the block runs."""
    if warehouse is None or "://" in warehouse:
        yield None
        return
    with marked(warehouse) as path:
        yield str(path)


def _check_executors(spark: SparkSession, server: WantedServer, marker: str | None) -> list[str]:
    """Check the server's machine and its executors; sets how many tasks run at once."""
    if marker is not None and not _server_sees(spark, marker):
        return [_no_warehouse(marker)]
    rows = _executor_facts(spark, server, marker).collect()
    spark.conf.set(PARALLELISM, str(len({row.part for row in rows})))
    lacking = sorted({row.lacks for row in rows if row.lacks})
    if zones := sorted({row.zone for row in rows} - _UTC):
        lacking.append(f"executors whose Java runs in UTC, not in {', '.join(zones)}")
    properties = ",".join(server.properties.values())
    if any(row.properties != properties for row in rows):
        options = " ".join(f"-D{name}={value}" for name, value in server.properties.items())
        lacking.append(f"executors whose Java has the options {options}")
    return lacking


def _no_warehouse(marker: str) -> str:
    folder = str(Path(marker).parent)
    return f"the warehouse {folder}, which has to be the same folder there as here, or a URI"


def _executor_facts(spark: SparkSession, server: WantedServer, marker: str | None) -> DataFrame:
    """Return facts about the executors, among them what their Python lacks for a replay."""
    of_java = "java_method('java.lang.System', 'getProperty', '{}')"
    frame = spark.range(_ROWS).select(
        F.spark_partition_id().alias("part"),
        F.expr("java_method('java.time.ZoneId', 'systemDefault')").alias("zone"),
        F.concat_ws(",", *(F.expr(of_java.format(name)) for name in server.properties)).alias(
            "properties"
        ),
        F.lit("").alias("lacks"),
    )
    warehouse = "" if marker is None else _no_warehouse(marker)
    return frame.mapInArrow(_task(marker, warehouse, fingerprint()), _FACTS)


def _task(marker: str | None, warehouse: str, code: str) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Return the function of the checking task, which must not need the package it checks for."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next((batch.slice(0, 1) for batch in batches if batch.num_rows), None)
        lacks = ""
        try:
            import_module(_TASKS)  # with all that it needs
            from replay.spark.package import fingerprint  # noqa: PLC0415 - it may be missing

            if fingerprint() != code:
                lacks = f"the same version of this package in its Python {sys.executable}"
            elif marker is not None and not Path(marker).exists():
                lacks = f"on its executors {warehouse}"
        except Exception as error:  # noqa: BLE001 - a module or its compiled part may be missing
            lacks = f"this package in its Python {sys.executable}: {error}"
        if first is not None:
            at = first.schema.get_field_index("lacks")
            yield first.set_column(at, first.schema.field(at), pa.array([lacks]))

    return task


def one_line(error: PySparkException) -> str:
    """Return the first line of a server's error, without secrets."""
    return redacted(str(error).strip().partition("\n")[0])
