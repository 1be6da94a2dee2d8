"""Extras: which modules each brings, and what is told where one is missing."""

import re
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import typer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from changelog.cli import app as changelog_app
from changelog.contract.base.errors import ConfigurationError
from changelog.runtime.edge import run_app
from changelog.runtime.installed.extras import (
    EXTRAS,
    MissingExtraError,
    check_extra,
    missing_extra,
    pip_command,
)
from views.cli import app as views_app

ROOT = Path(__file__).parents[4]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
ALL = {module for modules in EXTRAS.values() for module in modules}
DISTRIBUTIONS = {
    module: {canonicalize_name(each) for each in found}
    for module, found in packages_distributions().items()
}
OURS = {"changelog", "replay", "views"}
# Those that come along with a package that is declared.
ALONG = {"py4j": "pyspark", "cryptography": "authlib", "anyio": "httpx"}
# The build alone imports it.
BUILDS = {"setuptools"}
IMPORTS = re.compile(
    r"^[ ]*(?:from (\w+)[\w.]* import |import (\w+)[\w.]*(?: as \w+)?(?:  #.*)?$)", re.MULTILINE
)


def distributions(requirements):
    """Return the names that requirements stand for, those of our own extras in their place."""
    names = set()
    for each in map(Requirement, requirements):
        if each.name == PROJECT["name"]:
            for extra in each.extras:
                names |= distributions(PROJECT["optional-dependencies"][extra])
        else:
            names.add(canonicalize_name(each.name))
    return names


def brought_by(module, names):
    return bool(DISTRIBUTIONS[module] & names) or ALONG.get(module) in names


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_brings_the_modules_that_the_table_says(extra):
    names = distributions(PROJECT["optional-dependencies"][extra])
    assert [module for module in EXTRAS[extra] if not brought_by(module, names)] == []


def test_everything_that_users_need_is_in_one_extra():
    extras = PROJECT["optional-dependencies"]
    users = set(extras) - {"all", "stack", "demo", "notebooks", "dev"}
    assert distributions(extras["all"]) == set().union(*(distributions(extras[e]) for e in users))


def third_party(source):
    """Return the top modules that a source imports."""
    found = {first or second for first, second in IMPORTS.findall(source)}
    return found & DISTRIBUTIONS.keys() - OURS  # prose has lines like imports, too


def test_each_module_that_is_imported_is_of_the_base_or_of_an_extra():
    base = distributions(PROJECT["dependencies"])
    unknown = {
        (str(path.relative_to(ROOT)), module)
        for top in sorted(OURS)
        for path in (ROOT / top).rglob("*.py")
        for module in third_party(path.read_text("utf-8")) - ALL - BUILDS
        if not brought_by(module, base)
    }
    # Notebooks draw what `demo` brings along.
    assert {each for each in unknown if each[1] != "matplotlib"} == set()


CAPTURE = """
changelog.capture.loop.run changelog.capture.loop.together changelog.capture.lines.command
changelog.capture.inspect.check changelog.capture.inspect.metrics changelog.capture.inspect.status
changelog.capture.inspect.resnapshot changelog.capture.copy.snapshot_worker
changelog.source.tables.ddl changelog.source.stream.signals
changelog.lines.read_options changelog.lines.reading changelog.lines.writing changelog.lines.listing
changelog.lines.forms.parse changelog.lines.ask
changelog.load.load changelog.load.prepare changelog.load.job
changelog.publish.publish changelog.publish.postgres changelog.runtime.cron
changelog.stack.cli replay.survey changelog.sink.by_hand views.scaffold.cli views.scheduling
changelog.native.loads
"""
NEEDS = {
    "": CAPTURE,
    "pandas": "replay.api.log replay.api.table replay.api.frames",
    "verify": "views.verify.source.source changelog.publish.duckdb",
    "serve": "changelog.connect.api changelog.connect.worker changelog.connect.http.listening "
    "changelog.connect.http.additions",
    "spark": "views.command views.cases.run views.operate.doctor views.operate.teardown "
    "replay.spark.connect_server replay.api.source views.client views.api.project "
    "views.generations.reached",
    "follow": "views.rebuild.local.engine",
}


@pytest.mark.parametrize("extra", NEEDS)
def test_what_stands_on_an_extra_imports_no_module_of_another(extra):
    hidden = sorted(ALL - set(EXTRAS.get(extra, ())))
    code = f"import sys\nsys.modules.update(dict.fromkeys({hidden!r}))\n" + "\n".join(
        f"import {each}" for each in NEEDS[extra].split()
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr


@pytest.fixture
def base(monkeypatch):
    """Hides the modules of all extras."""
    for module in ALL:
        monkeypatch.setitem(sys.modules, module, None)


@pytest.mark.parametrize(
    ("app", "words", "extra"),
    [
        (views_app, "rebuild-view --plan", "spark"),
        (views_app, "rebuild-view orders --follow", "follow"),
        (changelog_app, "changelog verify", "verify"),
        (changelog_app, "changelog serve", "serve"),
        (changelog_app, "changelog test", "spark"),
        (changelog_app, "changelog doctor", "spark"),
        (changelog_app, "changelog teardown --plan", "spark"),
        (changelog_app, "changelog wait orders", "spark"),
        (changelog_app, "changelog push orders --to https://host/x", "spark"),
        (changelog_app, "changelog spark-server", "spark"),
        (
            changelog_app,
            "changelog publish --from duckdb:x --query SELECT --to x --key id --as json -b a:1",
            "verify",
        ),
    ],
)
def test_a_command_without_its_extra_names_it_in_one_line(
    app, words, extra, base, monkeypatch, capsys, tmp_path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", words.split())
    with pytest.raises(SystemExit) as ended:
        run_app(app, sys.argv[0])
    told = capsys.readouterr().err
    assert ended.value.code == ConfigurationError.exit_code == 2, told
    assert told.count("\n") == 1
    assert told.endswith(f"hint: {pip_command(extra)}\n"), told


def importing(module):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(lambda: import_module(module))
    return app


def test_a_module_that_is_missing_where_nobody_looked_is_told_in_one_line(
    base, monkeypatch, capsys
):
    monkeypatch.setattr(sys, "argv", ["some"])
    with pytest.raises(SystemExit) as ended:
        run_app(importing("deltalake"), "some")
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "error: the module deltalake is not installed: it comes with the extra [spark] | hint: "
        "pip install 'changelog-store[spark]'\n"
    )


def test_a_module_of_no_extra_is_an_error_as_ever(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["some"])
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        run_app(importing("no_such_module"), "some")


def test_a_name_of_the_package_says_the_extra(base, monkeypatch):
    import replay

    for name in [name for name in sys.modules if name.startswith("replay.api")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtraError, match=re.escape("[pandas]")):
        _ = replay.Log


def test_a_module_inside_a_package_that_is_there_is_no_missing_extra():
    error = ModuleNotFoundError("no", name="pyarrow.no_such")
    assert missing_extra(error) is error
    check_extra("pandas", "this")
