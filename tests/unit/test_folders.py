"""The house: a folder holds a dozen modules at most, and unit tests lie as what they test does."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("changelog", "replay", "views")
MOST = 12
FOLDERS = sorted(path.parent for name in PACKAGES for path in (ROOT / name).rglob("__init__.py"))
TESTS = sorted(
    path for name in PACKAGES for path in (ROOT / "tests" / "unit" / name).glob("*/test_*.py")
)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_folder_holds_a_dozen_modules_at_most(folder: Path) -> None:
    modules = [path.stem for path in folder.glob("*.py") if path.stem != "__init__"]
    assert len(modules) <= MOST, f"split it by subject: {', '.join(sorted(modules))}"


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_a_unit_test_lies_as_what_it_tests_does(path: Path) -> None:
    package, folder = path.relative_to(ROOT / "tests" / "unit").parts[:2]
    assert f"{package}.{folder}" in path.read_text(encoding="utf-8")
