import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from changelog.stack.download import spark_classes
from changelog.stack.download.jre import spark_archive
from changelog.stack.download.spark_classes import keep_classes


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Stand in for an installation of Spark, and for the session that writes the archive."""
    java = tmp_path / "java"
    homes = [java / name for name in ("home-new", "home-old")]
    for home in homes:
        home.mkdir(parents=True)
        (home / "lib").symlink_to(tmp_path)
    jars = tmp_path / "pyspark" / "jars"
    jars.mkdir(parents=True)
    (jars / "one.jar").write_bytes(b"one")
    ran = []

    def run(command, *, timeout, **_):
        ran.append(command)
        with Path(command[-2]).open("wb") as draft:
            draft.write(b"classes")
        return SimpleNamespace(returncode=0, stderr=b"")

    archive = spark_archive(homes[0], jars)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(spark_classes, "java_home", lambda: homes[0])
    monkeypatch.setattr(spark_classes, "pyspark_jars_dir", lambda: jars)
    monkeypatch.setattr(subprocess, "run", run)
    return SimpleNamespace(homes=homes, jars=jars, archive=archive, ran=ran)


def kept(machine):
    """Return the lines that are said and how many sessions were run."""
    lines: list[str] = []
    before = len(machine.ran)
    keep_classes([], lines.append)
    return lines, len(machine.ran) - before


def test_an_archive_is_made_once_and_again_of_other_jars(machine):
    lines, runs = kept(machine)
    assert (len(lines), runs) == (1, 1)
    assert machine.archive.read_bytes() == b"classes"
    assert kept(machine) == ([], 0)
    os.utime(machine.jars / "one.jar", (1, 1))
    assert kept(machine)[1] == 1
    machine.archive.unlink()
    assert kept(machine)[1] == 1
    assert kept(machine) == ([], 0)


def test_none_is_made_for_a_java_of_the_users_own(machine, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert kept(machine) == ([], 0)
    monkeypatch.setenv("JAVA_HOME", str(machine.homes[0]))
    assert kept(machine)[1] == 1


@pytest.mark.parametrize(
    ("hindrance", "why"),
    [
        ("room", "MiB are free"),
        ("failure", "ended with 1: no pyarrow"),
        ("time", "300 s were too short"),
    ],
)
def test_what_hinders_it_is_said_and_leaves_nothing(machine, monkeypatch, hindrance, why):
    def run(command, **_):
        with Path(command[-2]).open("wb") as draft:
            draft.write(b"half")
        if hindrance == "time":
            raise subprocess.TimeoutExpired(command, 1)
        return SimpleNamespace(returncode=1, stderr=b"Traceback\nno pyarrow\n")

    monkeypatch.setattr(subprocess, "run", run)
    if hindrance == "room":
        monkeypatch.setattr(spark_classes, "_ROOM_BYTES", 1 << 62)
    lines, _ = kept(machine)
    assert why in lines[-1]
    left = {path.name for path in machine.archive.parent.iterdir()}
    assert left == {"jars.lock", *(["jars.failed"] if hindrance == "time" else [])}
    if hindrance == "time":
        lines, runs = kept(machine)
        assert (runs, "it is tried again" in lines[-1]) == (0, True)


def test_a_place_that_cannot_be_written_is_said(machine):
    (machine.homes[0] / "spark").write_text("no folder")
    lines, runs = kept(machine)
    assert runs == 0
    assert lines[0].startswith("no archive of Spark's classes, sessions open as before: ")


def test_what_no_session_can_take_any_more_goes(machine, tmp_path):
    gone = spark_archive(machine.homes[1], tmp_path / "gone" / "jars")
    superseded = spark_archive(machine.homes[1], machine.jars)
    another = tmp_path / "another" / "jars"
    another.mkdir(parents=True)
    others = spark_archive(machine.homes[1], another)
    for archive in (gone, superseded, others):
        archive.parent.mkdir(parents=True)
        archive.touch()
    dead = machine.homes[0].parent / "home-dead"
    dead.mkdir()
    (dead / "lib").symlink_to(tmp_path / "no runtime")
    broken_off = machine.archive.parent / ".draft-x"
    broken_off.mkdir(parents=True)
    kept(machine)
    paths = (gone, superseded, others, dead, broken_off, machine.archive)
    assert [path.exists() for path in paths] == [False, False, True, False, False, True]
