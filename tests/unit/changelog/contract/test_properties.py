"""Settings that a user may add to producers and topics, and those that are kept."""

from __future__ import annotations

import pytest

from changelog.config import load_project
from changelog.contract.base.errors import ConfigurationError
from changelog.contract.log.properties import PRODUCER_KEPT, TOPIC_KEPT, parse_properties

SERVERS = '[postgres]\ndsn = "d"\n[kafka]\nbrokers = "b"\n[registry]\nurl = "u"\n'


@pytest.fixture
def project(tmp_path):
    def load(text="", **overrides):
        (tmp_path / "changelog.toml").write_text(SERVERS + text)
        return load_project(tmp_path, overrides=overrides)

    return load


@pytest.mark.parametrize("name", sorted(PRODUCER_KEPT))
def test_a_kept_setting_of_the_producer_is_refused_by_name(project, name):
    with pytest.raises(ConfigurationError, match=name) as caught:
        project(f'[capture.producer]\n"{name}" = "canary"\n')
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(TOPIC_KEPT))
def test_a_kept_setting_of_topics_is_refused_by_name(project, name):
    with pytest.raises(ConfigurationError, match=name):
        project(**{"capture.topic": {name: "x"}})


def test_the_command_line_adds_to_the_file_and_wins(project):
    text = '[capture.producer]\n"linger.ms" = "1"\n"batch.size" = "2"\n'
    found = project(text, **{"capture.producer": {"linger.ms": "9"}}).capture
    assert found.producer == {"linger.ms": "9", "batch.size": "2"}


def test_secrets_come_from_the_environment_and_are_in_no_repr(project, monkeypatch):
    monkeypatch.setenv("PASSWORD", "canary-1")
    monkeypatch.setenv("CHANGELOG_MASK_KEY", "canary-2")
    found = project(**{"capture.producer": {"sasl.password": "${PASSWORD}"}})
    assert found.capture.producer == {"sasl.password": "canary-1"}
    assert found.capture.mask_key == "canary-2"
    assert "canary" not in repr(found)


def test_settings_are_read_up_to_the_first_equals_sign():
    assert parse_properties(["a=b=c", " d = e "], "-C") == {"a": "b=c", "d": "e"}
    assert parse_properties([], "-C") is None


def test_a_setting_of_another_form_is_not_shown():
    with pytest.raises(ConfigurationError) as caught:
        parse_properties(["canary"], "-C")
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("size", "limits"),
    [("2000000", {}), ("99999744", {"message.max.bytes": "99999744", "kbytes": "195312"})],
)
def test_the_producer_takes_what_the_topics_take(project, size, limits):
    capture = project(f'[capture.topic]\n"max.message.bytes" = "{size}"\n').capture
    assert capture.topics.max_message_bytes == int(size)
    found = {name.replace("queue.buffering.max.", ""): v for name, v in capture.producer.items()}
    assert found == limits
    more = '[capture.producer]\n"message.max.bytes" = "7"\n'
    text = f'{more}[capture.topic]\n"max.message.bytes" = "{size}"\n'
    assert project(text).capture.producer["message.max.bytes"] == "7"


def test_a_size_is_a_whole_number_of_bytes(project):
    with pytest.raises(ConfigurationError, match="no whole number of bytes"):
        project('[capture.topic]\n"max.message.bytes" = "10MB"\n')
