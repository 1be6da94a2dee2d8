"""The site is built with every broken link an error, and is read without a network."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.matrix


@pytest.fixture
def sources(tmp_path):
    """A copy of what the site is made of, which a test may damage."""
    for name in ("docs", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def mkdocs():
    subprocess.run(["make", ".venv-site/.ready"], cwd=ROOT, check=True, timeout=300)
    return ROOT / ".venv-site" / "bin" / "mkdocs"


def built(mkdocs, folder):
    return subprocess.run(
        [mkdocs, "build", "--strict", "--clean"],
        cwd=folder, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def test_the_site_is_built_and_asks_no_other_host(mkdocs, sources):
    ran = built(mkdocs, sources)
    assert ran.returncode == 0, ran.stderr
    pages = list((sources / "site").glob("*.html"))
    assert len(pages) > 30
    foreign = re.compile(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"(?:https?:)?//[^\"]+")
    assert {found for page in pages for found in foreign.findall(page.read_text("utf-8"))} == set()
    start = (sources / "site" / "start.html").read_text("utf-8")
    assert 'href="read-a-view.html"' in start, "paths of pages are links"


def test_a_page_that_is_not_there_ends_the_build(mkdocs, sources):
    page = Path(sources / "docs" / "prove.md")
    page.write_text(page.read_text("utf-8") + "\nSee `docs/nowhere.md`.\n", encoding="utf-8")
    ran = built(mkdocs, sources)
    assert ran.returncode != 0
    assert "nowhere.md" in ran.stderr
