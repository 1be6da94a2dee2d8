"""What the repository must not hold: addresses of one machine, secrets, large files, outputs."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LARGEST_BYTES = 600_000

# Put together here, so that this file does not hold what it looks for.
_REGISTRIES = [
    "py" + "pi.org",
    "python" + "hosted.org",
    "repo1." + "maven.org",
    "repo.maven." + "apache.org",
    "central." + "sonatype.com",
    "registry." + "npmjs.org",
    "docker" + ".io",
    "ghcr" + ".io",
    "anaconda" + ".org",
    "conda" + "-forge",
]
_PLACES = ["/wo" + "rk/", "/ho" + "me/", "/tm" + "p/w/"]
_SECRETS = [
    re.compile("-----BEGIN [A-Z ]*PRIVATE " + r"KEY-----\n[A-Za-z0-9+/=]{40}"),
    re.compile(r"\bAKIA[0-9A-Z]{16}\b"),
    re.compile(r"\bgh[pousr]_[A-Za-z0-9]{36}\b"),
]


@cache
def _tracked() -> tuple[Path, ...]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    paths = tuple(ROOT / name for name in listed if name and (ROOT / name).is_file())
    assert len(paths) > 20
    return paths


def _texts() -> list[tuple[str, str]]:
    texts = []
    for path in _tracked():
        raw = path.read_bytes()
        if b"\0" not in raw:
            texts.append((str(path.relative_to(ROOT)), raw.decode("utf-8")))
    return texts


@pytest.mark.parametrize("host", _REGISTRIES)
def test_no_file_names_a_registry(host: str) -> None:
    assert [name for name, text in _texts() if host in text] == []


@pytest.mark.parametrize("place", _PLACES)
def test_no_file_names_a_place_of_one_machine(place: str) -> None:
    alone = re.compile(rf"(?<![\w.~/}}-]){re.escape(place)}\w")
    assert [name for name, text in _texts() if alone.search(text)] == []


@pytest.mark.parametrize(
    "lock", [f"requirements{part}.lock" for part in ("", "-run", "-bootstrap", "-site")]
)
def test_a_lock_file_holds_exact_versions_and_hashes_and_no_address(lock: str) -> None:
    text = (ROOT / lock).read_text("utf-8")
    entries = re.split(r"\n(?=[a-z0-9])", text)
    assert entries
    assert [entry for entry in entries if not re.match(r"[\w.\[\]-]+==\S+", entry)] == []
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
    assert "://" not in text


def test_what_a_user_runs_has_the_versions_that_are_tested_and_no_tool_of_ours() -> None:
    run, all_of_it = (
        set(re.findall(r"^[\w.\[\]-]+==\S+", (ROOT / name).read_text("utf-8"), re.MULTILINE))
        for name in ("requirements-run.lock", "requirements.lock")
    )
    assert run < all_of_it
    assert [each for each in run if re.match("moto|pytest|ruff|mypy|playwright|flask", each)] == []


def test_no_file_holds_a_secret() -> None:
    found = [name for name, text in _texts() if any(secret.search(text) for secret in _SECRETS)]
    assert found == []


def test_no_file_is_large() -> None:
    large = [str(path) for path in _tracked() if path.stat().st_size > LARGEST_BYTES]
    assert large == []


def test_notebooks_are_stored_without_outputs() -> None:
    for path in _tracked():
        if path.suffix == ".ipynb":
            cells = json.loads(path.read_text("utf-8"))["cells"]
            assert all(
                not cell.get("outputs") and not cell.get("execution_count") for cell in cells
            )


def test_every_folder_of_modules_is_a_package_in_the_repository() -> None:
    # What git ignores, such as a folder called `build`, is there on one machine alone.
    tracked = set(_tracked())
    roots = [ROOT / name for name in ("changelog", "replay", "views", "tests")]
    folders = {
        path.parent
        for path in tracked
        if path.suffix == ".py" and any(path.is_relative_to(root) for root in roots)
    }
    assert {folder for folder in folders if folder / "__init__.py" not in tracked} == set()
