"""The site of docs/: its order, and that its pages name what exists."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from changelog.config import every_section
from changelog.runtime.setting import declared
from tests.support.page import blocks_of
from tests.unit.test_docs import _command, _split, _walk

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
KINDS = {
    "sh", "python", "js", "java", "sql", "toml", "yaml", "json", "promql", "crontab", "cron", "ini",
}  # fmt: skip
"""Kinds of blocks that run, or are read by what would read them; else a block is `text`."""
TESTS = {
    "README.md": ("test_readme",),
    "docs/archive.md": ("test_archive",),
    "docs/certificate.md": ("test_row_digests",),
    "docs/connect.md": ("test_connect_page",),
    "docs/http-in.md": ("test_http_in",),
    "docs/design.md": ("test_design_page",),
    "docs/examples.md": ("test_examples",),
    "docs/history.md": ("test_history",),
    "docs/install.md": ("test_install_page",),
    "docs/loading.md": ("test_line_pages",),
    "docs/operating.md": ("test_operating_page", "test_tls", "test_groups"),
    "docs/page.md": ("test_changes_page", "test_changes"),
    "docs/python.md": ("test_python_page",),
    "docs/read-a-view.md": ("test_read_page",),
    "docs/reading.md": ("test_view_pages", "test_other_captures"),
    "docs/records.md": ("test_records_page",),
    "docs/recover.md": ("recover",),
    "docs/erase.md": ("test_erase",),
    "docs/remove.md": ("test_teardown",),
    "docs/scheduling.md": ("test_scheduling_page", "test_alerts"),
    "docs/serving.md": ("test_view_pages",),
    "docs/sinks.md": ("test_view_pages",),
    "docs/start.md": ("test_start_page",),
    "docs/verify-anything.md": ("test_compare_page",),
    "docs/testing.md": ("test_testing_page",),
    "docs/topics.md": ("test_line_pages",),
    "docs/upgrade.md": ("test_upgrade_page",),
}
"""What runs the blocks of a page: modules of tests/integration, or a folder of them."""
PROGRAMS = ("changelog", "rebuild-view")


def _site() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    return found


def test_the_site_begins_with_what_a_stranger_needs() -> None:
    titles = [next(iter(entry)) for entry in _site()["nav"]]
    assert titles == [
        "What it is", "Start here", "Design a view", "Read a view", "Prove a pipeline", "Operate",
        "Schedule", "Recover", "Reference", "Compared with", "Install", "Upgrade",
        "Remove everything",
    ]  # fmt: skip


def test_the_site_asks_no_other_host_and_knows_no_broken_link() -> None:
    site = _site()
    assert site["theme"]["font"] is False
    assert site["strict"] is True
    assert {site["validation"][name] for name in ("omitted_files", "anchors")} == {"warn"}


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_pages_name_pages_and_pictures_that_exist(path: Path) -> None:
    text = path.read_text("utf-8")
    pages = re.findall(r"`(docs/[\w./-]+\.md)`", text)
    assert [page for page in pages if not (ROOT / page).exists()] == []
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    assert [each for each in pictures if not (path.parent / each).exists()] == []


def _pages() -> Iterator[tuple[str, Path]]:
    for path in (ROOT / "README.md", *sorted(DOCS.glob("*.md"))):
        yield path.relative_to(ROOT).as_posix(), path


@pytest.mark.parametrize(("name", "path"), [*_pages()])
def test_each_block_of_a_page_says_what_it_is(name: str, path: Path) -> None:
    fences = re.findall(r"^```(\w*)", path.read_text("utf-8"), re.MULTILINE)
    assert {*fences[::2]} <= {*KINDS, "text"}, f"a block of {name} is of no kind"
    assert {*fences[1::2]} <= {""}


def test_each_block_that_runs_is_run_by_a_test() -> None:
    runs = {
        name
        for name, path in _pages()
        if any(each.kind in KINDS and not each.why_not for each in blocks_of(path))
    }
    assert runs == {*TESTS}, "name the test of a page's blocks, or say why one does not run"


@pytest.mark.parametrize(
    ("page", "test"), [(page, test) for page, tests in TESTS.items() for test in tests]
)
def test_what_runs_a_page_knows_it(page: str, test: str) -> None:
    place = ROOT / "tests" / "integration" / test
    found = sorted(place.glob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    assert any(Path(page).name in each.read_text("utf-8") for each in found)


def test_pages_name_commands_and_options_that_exist() -> None:
    trees = {program: dict(_walk(_command(program), ())) for program in PROGRAMS}
    checked = 0
    for words in (words for page in sorted(DOCS.glob("*.md")) for words in _commands_of(page)):
        tree = trees[words[0]]
        path: tuple[str, ...] = ()
        for word in words[1:]:
            if (*path, word) in tree:
                path = (*path, word)
        assert path or words[0] == "rebuild-view" or words[1].startswith("--"), words
        known = {option for parameter in tree[path].params for option in parameter.opts}
        known |= {option for each in tree[path].params for option in each.secondary_opts}
        used = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert used <= known, words
        checked += 1
    assert checked >= 90


def test_pages_name_settings_that_exist() -> None:
    sections = {
        name: {each.name.split(".")[1] for each in declared(model, name)}
        for name, model in every_section().items()
        if name in {"postgres", "kafka", "registry", "capture", "rebuild", "runs", "spark"}
    }
    blocks = [each for page in sorted(DOCS.glob("*.md")) for each in blocks_of(page)]
    checked = 0
    for block in (each for each in blocks if each.kind == "toml"):
        for name, given in tomllib.loads(block.text).items():
            if name in sections:
                assert set(given) <= sections[name], block.text
                checked += len(given)
    assert checked >= 10


def test_alerts_ask_for_metrics_that_exist() -> None:
    declared_names = set(re.findall(r"`(changelog_\w+)", (DOCS / "metrics.md").read_text("utf-8")))
    blocks = [each for page in sorted(DOCS.glob("*.md")) for each in blocks_of(page)]
    rules = [
        rule["expr"]
        for block in blocks
        if block.kind == "yaml" and "\ngroups:" in block.text
        for group in yaml.safe_load(block.text)["groups"]
        for rule in group["rules"]
    ]
    rules += [block.text for block in blocks if block.kind == "promql"]
    asked = set(re.findall(r"\bchangelog_\w+", " ".join(rules)))
    assert len(asked) >= 8
    assert asked <= declared_names


def _commands_of(page: Path) -> Iterator[list[str]]:
    for block in blocks_of(page):
        for line in block.text.splitlines() if block.kind == "sh" else ():
            if re.match(r"(?:\S*/)?(?:changelog|rebuild-view) ", line):
                for words in _split(shlex.split(line, comments=True)):
                    if words and Path(words[0]).name in PROGRAMS:
                        yield [Path(words[0]).name, *words[1:]]


@pytest.mark.parametrize("path", sorted((DOCS / "pictures").glob("*.svg")), ids=lambda p: p.name)
def test_pictures_say_what_they_show_and_ask_nobody(path: Path) -> None:
    root = ET.parse(path).getroot()  # noqa: S314 - our own
    name = root.get("aria-label") or root.findtext("{http://www.w3.org/2000/svg}title")
    assert name
    text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
    assert "://" not in text
