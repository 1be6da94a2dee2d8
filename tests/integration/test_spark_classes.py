"""Spark's classes come from the archive, with the Java that sessions have."""

from __future__ import annotations

import os
import shutil
import subprocess
from types import SimpleNamespace

import pytest

from changelog.stack.download.fetch import spark_jars
from changelog.stack.download.ivy import pyspark_jars_dir
from changelog.stack.download.jre import bare_java, java_home, shim_script, spark_archive
from changelog.stack.download.spark_classes import keep_classes

pytestmark = pytest.mark.slow

SUBMIT = "org.apache.spark.deploy.SparkSubmit"
ARCHIVED = "shared objects file (top)"
QUIET = "'-Xlog:cds*=off'"


@pytest.fixture(scope="module")
def archive():
    """Return the archive that `make downloads` has left, or make it."""
    own = os.environ.get("JAVA_HOME")
    if own and own != str(java_home()):
        pytest.skip("sessions run on the Java of JAVA_HOME")
    lines: list[str] = []
    keep_classes(spark_jars(None), lines.append)
    path = spark_archive(java_home(), pyspark_jars_dir().resolve())
    assert path.is_file(), lines
    return path


@pytest.fixture
def copy(tmp_path, archive):
    """Make a Java of this test's, a Spark of the same jars elsewhere, and their small archive."""
    real = pyspark_jars_dir().resolve()
    home, spark = tmp_path / "java home", tmp_path / "spark"
    jars = spark / "jars"
    small = spark_archive(home, jars)
    for folder in (home / "bin", jars, small.parent):
        folder.mkdir(parents=True)
    (spark / "bin").symlink_to(real.parent / "bin")
    for jar in real.glob("*.jar"):
        (jars / jar.name).symlink_to(jar)
    (home / "classes.jsa").symlink_to(java_home() / "classes.jsa")
    java = home / "bin" / "java"
    java.write_text(shim_script(bare_java(), home))
    java.chmod(0o755)
    places = {"JAVA_HOME": home, "SPARK_HOME": spark}
    draft = tmp_path / "draft.jsa"
    started(tmp_path, options=f"-XX:ArchiveClassesAtExit={draft}", **places)
    draft.replace(small)
    return SimpleNamespace(archive=small, jars=jars, java=java, places=places)


def started(tmp_path, *, options="", **variables):
    """Start SparkSubmit; return where its class came from and all that Java printed."""
    log = tmp_path / "loaded.txt"
    spark = variables.get("SPARK_HOME", pyspark_jars_dir().parent)
    ran = subprocess.run(
        [f"{spark}/bin/spark-class", SUBMIT, "--version"],
        env={
            **{name: text for name, text in os.environ.items() if not name.startswith("SPARK_")},
            "JAVA_HOME": str(java_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": f"-Xlog:class+load:file={log} {options}",
            **{name: str(value) for name, value in variables.items()},
        },
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "Welcome to" in ran.stderr
    (line,) = (line for line in log.read_text().splitlines() if f" {SUBMIT} source: " in line)
    return line.partition(" source: ")[2], ran.stdout + "".join(_of_java(ran.stderr))


def _of_java(text):
    return [line for line in text.splitlines() if "[cds" in line or line.startswith("OpenJDK")]


def test_a_session_takes_its_classes_from_the_archive(archive, tmp_path):
    assert started(tmp_path) == (ARCHIVED, "")
    # Pointers of another size: the archive of Java's own classes alone would not fit.
    assert started(tmp_path, options="-Xmx40g")[1] == ""


def test_with_settings_of_sparks_in_a_folder_it_reads_the_jars(archive, tmp_path):
    folder = tmp_path / "conf"
    folder.mkdir()
    source, printed = started(tmp_path, SPARK_CONF_DIR=folder)
    assert "spark-core" in source
    assert printed == ""


def test_where_it_does_not_fit_it_is_left_alone_without_a_word(copy, tmp_path):
    def left_alone():
        source, printed = started(tmp_path, **copy.places)
        assert "spark-core" in source
        assert printed == ""

    whole = copy.archive.read_bytes()
    copy.archive.unlink()
    copy.archive.write_bytes(whole[: len(whole) // 2])
    left_alone()
    copy.archive.write_bytes(whole)
    assert started(tmp_path, **copy.places) == (ARCHIVED, "")
    jar = next(copy.jars.glob("spark-core*.jar"))
    real = jar.resolve()
    jar.unlink()
    shutil.copyfile(real, jar)  # the same bytes, of another time
    left_alone()
    text = copy.java.read_text()
    assert QUIET in text
    copy.java.write_text(text.replace(QUIET, ""))
    assert "shared archive" in started(tmp_path, **copy.places)[1]  # else Java says so
