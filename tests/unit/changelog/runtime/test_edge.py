"""The edge of commands, and project settings."""

import json
import logging
import os
import subprocess
import sys
from datetime import datetime, timedelta
from importlib import import_module
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from changelog.config import load_project
from changelog.contract.base.errors import ChangelogError, ConfigurationError
from changelog.contract.base.secret import redacted
from changelog.runtime.edge import (
    JsonFormatter,
    LogFormat,
    bar_console,
    logs_json,
    print_json,
    run_app,
    set_up_logging,
    tell,
)
from changelog.runtime.options import JsonOption
from changelog.runtime.terminal import console
from tests.support.outputs import closed_pipe


@pytest.fixture(autouse=True)
def plain_logging():
    yield
    set_up_logging()


TOML = """
[postgres]
dsn = "${PG_DSN}"
[kafka]
brokers = "127.0.0.1:1"
options = { "sasl.password" = "${file:secret.txt}" }
[registry]
url = "http://127.0.0.1:2/"
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "changelog.toml").write_text(TOML)
    (tmp_path / "secret.txt").write_text("canary-1\n")
    monkeypatch.setenv("PG_DSN", "postgresql://u:canary-2@127.0.0.1/db")
    return tmp_path


def test_references_to_environment_and_files_are_resolved(project):
    loaded = load_project(project)
    assert loaded.postgres == "postgresql://u:canary-2@127.0.0.1/db"
    assert loaded.kafka.options["sasl.password"] == "canary-1"
    assert loaded.registry.url == "http://127.0.0.1:2"


def test_settings_show_no_secret_when_printed(project):
    assert "canary" not in repr(load_project(project))


def test_the_command_line_overrides_the_file(project):
    loaded = load_project(project, overrides={"capture.slot": "mine", "kafka.brokers": None})
    assert loaded.slot == loaded.capture.publication == "mine"
    assert loaded.kafka.brokers == "127.0.0.1:1"


def test_the_mark_that_some_editors_put_first_is_no_part_of_the_file(project):
    file = project / "changelog.toml"
    file.write_text(file.read_text("utf-8"), encoding="utf-8-sig")
    assert load_project(project).kafka.brokers == "127.0.0.1:1"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[capture]\ntabels = []", "capture.tabels"),
        ("[capture]\npartitions = 0", "capture.partitions"),
        ("[capture", "not valid TOML"),
        ('[postgres]\ndsn = "${NOT_SET_ANYWHERE}"', "NOT_SET_ANYWHERE"),
        ("", r"postgres\.dsn is not set"),
    ],
)
def test_bad_settings_are_named(tmp_path, text, says):
    (tmp_path / "changelog.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=says):
        load_project(tmp_path)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("[capture]\ntabels = []", "capture.tables"),
        ("[capture]\nfrontier_intervall_ms = 5", "capture.frontier_interval_ms"),
        ("[captur]\nslot = 'x'", "capture"),
        ("[postgres]\nslot = 'x'", "capture.slot"),
        ("[rebuild]\nsettings = {}", "spark.settings"),
    ],
)
def test_a_setting_that_is_none_has_the_nearest_one_told(tmp_path, text, meant):
    (tmp_path / "changelog.toml").write_text(text)
    with pytest.raises(ConfigurationError, match="there is no such setting") as caught:
        load_project(tmp_path)
    assert caught.value.hint == f"did you mean {meant}?"


def test_a_setting_that_is_like_no_other_has_no_guess(tmp_path):
    (tmp_path / "changelog.toml").write_text("[capture]\nxylophone = 1")
    with pytest.raises(ConfigurationError, match="no such setting") as caught:
        load_project(tmp_path)
    assert "did you mean" not in caught.value.hint


@pytest.mark.parametrize("command", ["changelog", "rebuild-view"])
def test_the_version_is_told_at_once(command):
    (script,) = entry_points(group="console_scripts", name=command)
    done = CliRunner().invoke(import_module(script.module).app, ["--version"])
    first, *others = done.stdout.splitlines()
    assert (done.exit_code, first) == (0, f"changelog-store {version('changelog-store')}")
    assert f"pyspark {version('pyspark')}" in others
    assert not any("not installed" in each for each in others)


def test_a_connection_that_a_command_does_not_need_may_be_missing(tmp_path):
    (tmp_path / "changelog.toml").write_text('[kafka]\nbrokers = "127.0.0.1:1"')
    loaded = load_project(tmp_path, needs=["brokers"])
    assert (loaded.postgres, loaded.kafka.brokers) == ("", "127.0.0.1:1")
    with pytest.raises(ConfigurationError, match=r"registry\.url is not set"):
        load_project(tmp_path, needs=["brokers", "schema_registry"])


def test_log_lines_never_show_a_password(capsys):
    set_up_logging()
    logging.getLogger("changelog.test").warning("connect to %s", "kafka://u:canary@host")
    shown = capsys.readouterr().err
    assert "connect to" in shown
    assert "canary" not in shown


def lines_of(capsys):
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_json_lines_say_when_what_and_where(capsys):
    set_up_logging(log_format=LogFormat.JSON)
    log = logging.getLogger("changelog.test")
    log.info("two\nlines of %s", 'a "table"', extra={"table": "public.a", "lsn": "0/1"})
    log.debug("not asked for")
    log.warning("plain")
    first, second = lines_of(capsys)
    assert datetime.fromisoformat(first.pop("time")).utcoffset() == timedelta()
    assert first == {
        "level": "info",
        "logger": "changelog.test",
        "message": 'two\nlines of a "table"',
        "table": "public.a",
        "lsn": "0/1",
    }
    assert (second["level"], second["message"]) == ("warning", "plain")


def test_json_lines_never_show_a_password(capsys):
    set_up_logging(log_format=LogFormat.JSON)
    log = logging.getLogger("changelog.test")
    secret = "postgresql://u:canary@host/db"
    log.info("to %s", secret, extra={"table": "sasl.password='can\"ary'", "topic": "token=canary"})
    try:
        raise ConfigurationError(f"cannot use {secret}")
    except ConfigurationError:
        log.exception("failed with password=%s", "canary")
    first, second = lines_of(capsys)
    shown = json.dumps([first, second])
    assert "canary" not in shown
    assert 'can\\"ary' not in shown
    assert "Traceback" in second["exception"]


@given(st.text(), st.text())
def test_any_message_is_one_line_of_json(message, table):
    record = logging.LogRecord("changelog.x", logging.INFO, "f", 1, "%s", (message,), None)
    record.table = table
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line)["table"] == redacted(table)


@pytest.mark.parametrize("words", [["--log-format", "json"], ["--log-format=json"]])
@pytest.mark.parametrize("debug", [[], ["--debug"]])
def test_an_error_at_the_edge_is_a_json_line_too(capsys, monkeypatch, words, debug):
    app = typer.Typer()

    @app.command()
    def fail(log_format: str = "text", debug: bool = False, as_json: JsonOption = False):
        tell("before")
        raise ConfigurationError("no password=canary here", hint="look")

    monkeypatch.setattr(sys, "argv", ["changelog", *words, *debug, "--json"])
    with pytest.raises(SystemExit) as ended:
        run_app(app, "changelog")
    assert ended.value.code == 2
    said = capsys.readouterr()
    first, second = [json.loads(line) for line in said.err.splitlines()]
    assert (first["level"], first["message"]) == ("info", "before")
    assert (second["level"], second["message"]) == ("error", "no password=*** here | hint: look")
    assert ("exception" in second) == bool(debug)
    assert "canary" not in said.err + said.out
    assert json.loads(said.out)["exit_code"] == 2


@pytest.mark.parametrize("words", [[], ["--debug"]])
def test_a_stack_trace_leaves_the_exit_code_and_no_secret(capsys, monkeypatch, words):
    app = typer.Typer()

    @app.command()
    def fail(debug: bool = False):
        raise ConfigurationError("no password=canary here", hint="look")

    monkeypatch.setattr(sys, "argv", ["changelog", *words])
    with pytest.raises(SystemExit) as ended:
        run_app(app, "changelog")
    assert ended.value.code == 2
    *trace, last = capsys.readouterr().err.splitlines()
    assert last == "error: no password=*** here | hint: look"
    assert bool(trace) == bool(words)
    assert "canary" not in "".join(trace)


def test_bars_are_left_out_of_json_lines():
    set_up_logging(log_format=LogFormat.JSON)
    assert logs_json()
    assert not bar_console().is_terminal
    set_up_logging()
    assert bar_console() is console


def test_a_result_that_nobody_reads_is_let_go(monkeypatch):
    with os.fdopen(closed_pipe(), "w", encoding="utf-8") as output:
        monkeypatch.setattr(sys, "stdout", output)
        print_json({"rows": 1})
        print_json({"rows": 2})


def test_a_result_that_the_disk_does_not_take_is_an_error_of_one_line(monkeypatch):
    with Path("/dev/full").open("w", encoding="utf-8") as output:
        monkeypatch.setattr(sys, "stdout", output)
        with pytest.raises(ChangelogError, match="standard output cannot be written: No space"):
            print_json({"rows": 1})


@pytest.mark.parametrize("words", ["--version", "--help", "capture --config-help"])
def test_a_full_disk_is_told_in_one_line_by_what_only_prints(words):
    with Path("/dev/full").open("w", encoding="utf-8") as output:
        ran = subprocess.run(
            [sys.executable, "-m", "changelog", *words.split()],
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    said = "error: standard output or a file cannot be written: No space left on device\n"
    assert (ran.returncode, ran.stderr) == (1, said)


def test_a_value_that_a_console_would_draw_as_a_picture_is_told_as_it_is(capsys):
    tell("error: a row with the key root:x:0, :smile:")
    assert capsys.readouterr().err == "error: a row with the key root:x:0, :smile:\n"


def test_a_crash_in_a_library_tells_what_python_was_doing():
    code = (
        "import os, signal\n"
        "from changelog.runtime.edge import set_up_logging\n"
        "set_up_logging()\n"
        "os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode < 0
    assert "Segmentation fault" in done.stderr
    assert 'File "<string>", line 4' in done.stderr
