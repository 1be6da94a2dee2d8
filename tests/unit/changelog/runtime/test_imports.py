"""No folder of a user's stands in for one of our packages."""

import os
import subprocess
import sys

import pytest

from changelog.runtime.imports import PACKAGES, ROOT, SAFE_PATH


@pytest.fixture(params=["folders", "packages"])
def project(request, tmp_path):
    """A project's folder, with folders that are called as our packages are."""
    for name in ("views", "replay"):
        (tmp_path / name).mkdir()
        if request.param == "packages":
            (tmp_path / name / "__init__.py").touch()
    return tmp_path


def python(folder, *words, **environment):
    """Run Python in a folder; return what it prints.

    A test before this one may have made this process, and what it starts, look in safe places only.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in SAFE_PATH}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_command_finds_its_own_in_a_project_s_folder(project):
    said = python(project, "-m", "changelog", "verify", "--help", PYTHONPATH=str(project))
    assert "verify [OPTIONS]" in said


SHOWN = "import importlib; print(importlib.import_module('views').__path__[0])"
FIRST = "from changelog.runtime.imports import find_ours_first; find_ours_first();"


def test_ours_are_found_first_and_twin_a_user_s_package_would_win(project):
    assert python(project, "-c", FIRST + SHOWN) == str(ROOT / "views")
    if (project / "views" / "__init__.py").exists():
        assert python(project, "-c", SHOWN) == str(project / "views")


def test_what_we_start_finds_ours_too(project):
    assert python(project, "-c", SHOWN, **SAFE_PATH) == str(ROOT / "views")


def test_the_code_is_the_same_wherever_it_is_asked_for(project):
    ask = "from replay.spark.package import fingerprint; print(fingerprint())"
    assert python(project, "-c", FIRST + ask) == python(ROOT, "-c", ask)


def test_all_top_packages_are_ours():
    assert {path.parent.name for path in ROOT.glob("*/py.typed")} == set(PACKAGES)
