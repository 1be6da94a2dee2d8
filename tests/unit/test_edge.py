"""The edge of commands, and project settings."""

import logging

import pytest

from changelog.config import load_project
from changelog.contract.errors import ConfigurationError
from changelog.edge import set_up_logging

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
