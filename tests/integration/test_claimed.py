"""Topics that captures and rebuilds write are refused by all else that writes to topics."""

import subprocess
import sys

import pytest

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.log.topic import TopicSettings
from changelog.sink.claimed import check_unclaimed
from changelog.sink.topics import plan_topics
from tests.integration.test_incompatible import Capture
from tests.support.matrix import first
from tests.support.topics import ensure_topics

pytestmark = pytest.mark.services


@pytest.fixture(params=["", "_prefix"])
def capture(request, dsn, kafka, registry, prefix, tmp_path):
    made = Capture(
        dsn=dsn, kafka=kafka, registry=registry, prefix=prefix + request.param, folder=tmp_path
    )
    made.sql("CREATE TABLE pears (id integer PRIMARY KEY)", "INSERT INTO pears VALUES (1)")
    yield made
    made.kill()


def write(capture, topic):
    words = [sys.executable, "-m", "changelog", "write", topic, "--project", str(capture.folder)]
    done = subprocess.run(
        words, check=False, capture_output=True, input=b"a\tb\n", timeout=120, cwd=capture.folder
    )
    return done.returncode, done.stderr.decode()


def publish(capture, topic):
    query = ("--query", "SELECT 1 AS id", "--from", f"postgres:{capture.dsn}")
    code, _, said = capture.run_other("publish", *query, "--to", topic, "--as", "json")
    return code, said


@pytest.mark.parametrize("way", first(1, [write, publish]))
def test_what_a_capture_writes_is_refused(capture, kafka, way):
    capture.finish()
    locks, other = f"{capture.prefix}._locks", f"{capture.prefix}.pears_too"
    settings = TopicSettings(compacted=False)
    ensure_topics(kafka, {locks: 1, other: 1}, replication=-1, settings=settings)
    for topic in (f"{capture.prefix}.pears", f"{capture.prefix}._frontier", locks):
        code, said = way(capture, topic)
        assert code == 2, said
        assert f'topic "{topic}" is where' in said
        assert "choose a topic of another name" in said
    code, said = way(capture, other)
    assert code == 0, said


def test_a_topic_is_claimed_once_its_first_snapshot_has_begun(capture, kafka):
    pears = f"{capture.prefix}.pears"
    check_unclaimed(kafka, pears)
    with pytest.raises(ConfigurationError, match="keep the frontier"):
        check_unclaimed(kafka, f"{capture.prefix}._frontier")
    check_unclaimed(kafka, f"{capture.prefix}._messages")
    capture.crash("progress written:1")
    with pytest.raises(ConfigurationError, match=r'writes the table "public\.pears"'):
        check_unclaimed(kafka, pears)
    with pytest.raises(ConfigurationError, match="keep the messages"):
        check_unclaimed(kafka, f"{capture.prefix}._messages")


@pytest.mark.parametrize("way", first(1, [write, publish]))
def test_what_brokers_and_workers_keep_is_written_by_nobody_else(capture, kafka, way):
    kept = f"{capture.prefix}-state"
    settings = TopicSettings(compacted=False)
    ensure_topics(kafka, {kept: 1, f"{capture.prefix}-tasks": 1}, replication=-1, settings=settings)
    code, said = way(capture, kept)
    assert (code, "where workers" in said) == (2, True), said
    with pytest.raises(ConfigurationError, match="the brokers' own"):
        check_unclaimed(kafka, "__consumer_offsets")


def test_a_table_with_the_name_of_such_a_topic_is_not_captured_into_it(capture, kafka):
    kept = f"{capture.prefix}-state"
    settings = TopicSettings()
    ensure_topics(kafka, {kept: 1, f"{capture.prefix}-tasks": 1}, replication=-1, settings=settings)
    with pytest.raises(ConfigurationError, match="where workers"):
        plan_topics(kafka, {kept: 1}, replication=-1, settings=settings, fix=True)
    pair = {kept: 1, f"{capture.prefix}-tasks": 1}
    assert not plan_topics(kafka, pair, replication=-1, settings=settings).missing
