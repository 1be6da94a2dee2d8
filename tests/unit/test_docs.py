"""The documents tell the truth: paths exist, commands exist, every option has help."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from changelog.capture.loop.frontiers import RENEW_S
from changelog.contract.rows.types import Kind, column_type
from changelog.reference import page as settings_page
from scripts.pages import PAGES
from views.verify.sql.functions import page

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
TOPS = ("changelog", "replay", "views")
ROOTS = {*TOPS, "changelog/stack", "views/verify"}
"""Folders of folders: what lies in them is their top alone."""
ARCHITECTURE = ROOT / "docs" / "architecture.md"
COMMANDS = ("changelog", "rebuild-view")
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(
    r"\.?(?:[A-Za-z_][\w-]*/)+[\w.-]*|[\w.-]+\.(?:md|toml|py)|\.importlinter|LICENSE"
)


def _paths_in(text: str) -> set[str]:
    return {code for code in _CODE.findall(text) if _PATH.fullmatch(code)}


def _command(name: str) -> Any:
    """Load a console script's command line, with the commands that join it."""
    if name == "rebuild-view":
        from views.cli import app

        return typer.main.get_command(app)
    from changelog.cli import app as changelog_app

    return typer.main.get_command(changelog_app)


def _walk(command: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    found = [(path, command)]
    if hasattr(command, "list_commands"):
        context = command.context_class(command)
        for name in command.list_commands(context):
            found += _walk(command.get_command(context, name), (*path, name))
    return found


def _readme_lines() -> list[list[str]]:
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    words = [shlex.split(line, comments=True) for line in lines]
    return [part for line in words for part in _split(line)]


def _split(words: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == "&&":
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _targets() -> dict[str, str]:
    text = (ROOT / "Makefile").read_text("utf-8")
    return dict(re.findall(r"^([a-z-]+):.*?(?:## (.*))?$", text, re.MULTILINE))


@pytest.mark.parametrize("document", ["docs/architecture.md", "README.md", "CONTRIBUTING.md"])
def test_each_path_that_a_document_names_exists(document: str) -> None:
    paths = _paths_in((ROOT / document).read_text("utf-8")) - {"changelog.toml", "views/"}
    assert len(paths) >= 5, "the pattern finds no paths any more"
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_each_python_file_that_a_comment_in_c_names_exists() -> None:
    named = [
        (source.name, path)
        for source in sorted((ROOT / "changelog/native/src").glob("*.[ch]"))
        for path in re.findall(r"[\w/]+\.py\b", source.read_text("utf-8"))
    ]
    assert len(named) >= 10, "the pattern finds no paths any more"
    assert [each for each in named if not (ROOT / each[1]).is_file()] == []


def test_the_architecture_stays_a_page_that_people_read() -> None:
    assert len(ARCHITECTURE.read_text("utf-8").splitlines()) <= 150


def test_the_page_of_folders_names_each_by_its_first_sentence() -> None:
    text = (ROOT / "docs" / "folders.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `([a-z_/]+)` \| (.*) \|$", text, re.MULTILINE))
    found = {}
    for path in (path for top in TOPS for path in sorted((ROOT / top).rglob("__init__.py"))):
        folder = path.parent.relative_to(ROOT).as_posix()
        said = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        assert "come in" in said or "comes in" in said, f"{folder} does not say what comes in"
        assert "go out" in said or "goes out" in said, f"{folder} does not say what goes out"
        if set(path.parent.glob("*.py")) - {path} and folder not in ROOTS:
            found[folder] = said.partition("\n")[0]
    assert rows == found


def test_the_words_of_the_glossary_are_those_of_the_code() -> None:
    lines = (ROOT / "docs" / "glossary.md").read_text("utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    places = [place for row in rows for place in re.findall(r"`([^`]+)`", row[2])]
    assert len(places) > 40, "the pattern finds no words any more"
    code = [path.read_text("utf-8") for top in TOPS for path in (ROOT / top).rglob("*.py")]
    names = {
        name for text in code for name in re.findall(r"^ *(?:class|def) (\w+)", text, re.MULTILINE)
    }
    folders = {
        path.relative_to(ROOT).as_posix() for top in TOPS for path in (ROOT / top).rglob("*")
    }
    assert [each for each in places if each not in names | folders] == []


def test_decisions_are_numbered_once() -> None:
    numbers = [path.name[:4] for path in (ROOT / "docs" / "decisions").glob("*.md")]
    assert numbers
    assert all(number.isdigit() for number in numbers)
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_has_help(name: str) -> None:
    silent = []
    commands = _walk(_command(name), (name,))
    for path, command in commands:
        if not (command.help or "").strip():
            silent.append(" ".join(path))
        for parameter in command.params:
            if parameter.name == "help":
                continue
            if not (getattr(parameter, "help", None) or "").strip():
                silent.append(f"{' '.join(path)} {parameter.opts[0]}")
    assert sum(len(command.params) for _, command in commands) > 5
    assert silent == []


def test_readme_names_commands_and_options_that_exist() -> None:
    trees = {name: dict(_walk(_command(name), ())) for name in COMMANDS}
    checked = 0
    for words in _readme_lines():
        if not words or words[0] not in COMMANDS:
            continue
        tree = trees[words[0]]
        path: tuple[str, ...] = ()
        for word in words[1:]:
            if (*path, word) in tree:
                path = (*path, word)
        assert path or words[0] == "rebuild-view", f"{words} names no command"
        known = {option for parameter in tree[path].params for option in parameter.opts}
        unknown = [w for w in words if w.startswith("--") and w not in known]
        assert unknown == [], f"{' '.join(words)}: {unknown}"
        checked += 1
    assert checked >= 6


def test_readme_names_make_targets_that_exist_and_explain_themselves() -> None:
    named = {words[1] for words in _readme_lines() if words[:1] == ["make"]}
    assert named >= {"demo", "test"}
    targets = _targets()
    assert named <= set(targets)
    assert [target for target, text in targets.items() if not text] == []


@pytest.mark.parametrize(
    ("target", "alone"), [("unit", "tests/unit/test_docs.py"), ("integration", "tests/integration")]
)
def test_a_path_in_args_narrows_the_tests(target: str, alone: str) -> None:
    make = ["make", "-n", "-o", "downloads", "-o", "lint", "-o", "type", "-o", "imports", target]
    output = subprocess.check_output([*make, f"ARGS={alone} -k x"], cwd=ROOT, text=True)
    assert re.findall(r"tests/\S+", output) == [alone]


def test_ci_runs_the_test_command_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert re.search(
        r"^\s*(?:exec |as_user )?make (?:--no-print-directory )?test </", script, re.MULTILINE
    )
    assert "set -euo pipefail" in script


def test_the_page_of_functions_is_what_the_verifier_goes_by() -> None:
    assert (ROOT / "docs/sql.md").read_text("utf-8") == page(), "write it anew: make pages"


def test_the_page_of_settings_is_what_is_declared() -> None:
    said = (ROOT / "docs/configuration.md").read_text("utf-8")
    assert said == settings_page(), "write it anew: make pages"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_that_is_made_of_the_code_is_new(name: str) -> None:
    said = (ROOT / "docs" / f"{name}.md").read_text("utf-8")
    assert said == PAGES[name]().rstrip() + "\n", "write it anew: make pages"


def _nav(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for found in entry.values():
            if isinstance(found, str):
                yield found
            else:
                yield from _nav(found)


def test_the_order_of_the_site_names_each_page_once() -> None:
    named = list(_nav(yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]))
    assert len(named) == len(set(named))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert set(named) == pages, "each page has a place in mkdocs.yml"


def test_each_failure_has_a_recipe() -> None:
    table = ARCHITECTURE.read_text("utf-8").partition("## When something fails")[2]
    row = re.compile(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
    rows = row.findall(table.partition("\n## ")[0])
    failures = [row for row in rows if row[0] != "what fails"]
    recipes = []
    for part in (ROOT / "docs" / "recover.md").read_text("utf-8").split("\n## ")[1:]:
        ends = re.search(r"^\*What happens:\* (.+)\. \*Lost:\* (.+)\.$", part, re.MULTILINE)
        if ends is not None:
            assert "\n**You see:** " in part
            assert "\n```sh\n" in part
            recipes.append((part.partition("\n")[0], ends[1], ends[2]))
    assert len(failures) >= 30
    assert recipes == [(f"{what[0].upper()}{what[1:]}", *rest) for what, *rest in failures]


def test_the_page_of_limits_tells_which_types_are_text() -> None:
    text = " ".join((ROOT / "docs/limits.md").read_text("utf-8").split())
    as_text = re.search(r"((?:`[a-z]+`,? ?(?:and )?)+)are text", text)
    assert as_text is not None
    for name in re.findall(r"`([a-z]+)`", as_text[1]):
        assert column_type(name, name).kind is Kind.STRING, name
    carried = re.search(r"It carries (.*?) and arrays", text)
    assert carried is not None
    for name in ("timestamp", "timestamptz", "date"):
        assert name in carried[1]
        assert column_type(name, name).kind is not Kind.STRING


def test_the_page_of_limits_tells_how_often_frontiers_come() -> None:
    assert RENEW_S == 60.0, "docs/limits.md: once a minute at rest"
    limits = (ROOT / "docs/limits.md").read_text("utf-8")
    assert "once a minute at rest" in " ".join(limits.split())


def test_the_readme_is_one_screen() -> None:
    assert len(README.splitlines()) <= 80
