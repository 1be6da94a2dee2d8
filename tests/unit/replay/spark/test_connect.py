"""What a session on a server asks before there is one, and what a server is started with."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql.connect.client.retries import Retrying

from changelog.contract.base.errors import ConfigurationError, UnavailableError
from changelog.stack.base.ports import LOOPBACK, pick
from replay.spark import connect, server_look, session
from replay.spark.connect import connected, place_of
from replay.spark.connect_retries import RetriesWhileThere
from replay.spark.connect_server import shown, with_server
from replay.spark.package import fingerprint
from replay.spark.server_look import WantedServer
from replay.spark.session import SessionSettings

WANTED = WantedServer(settings={}, properties={}, warehouse=None)


def test_a_server_that_is_not_there_is_told_at_once():
    port = pick()
    with pytest.raises(UnavailableError, match=f"{LOOPBACK}:{port}.*changelog spark-server"):
        connected(f"sc://{LOOPBACK}:{port}/;token=s3cret", WANTED)


def test_a_place_never_shows_a_token():
    assert place_of("sc://spark.internal/;use_ssl=true;token=s3cret") == "spark.internal:15002"
    assert place_of("sc://spark.internal:7077") == "spark.internal:7077"


def test_a_server_that_cancels_a_question_lacks_nothing():
    def cancelled():
        raise PySparkException("[OPERATION_CANCELED] Operation has been canceled.")

    def unknown():
        raise PySparkException("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: avro.")

    with pytest.raises(PySparkException, match="OPERATION_CANCELED"):
        server_look._read_fault(cancelled)
    assert "data source" in str(server_look._read_fault(unknown))


@pytest.mark.parametrize("url", ["sc://", "sc://:15002", "sc://host:port"])
def test_an_address_without_a_place_is_refused(url):
    with pytest.raises(ConfigurationError):
        place_of(url)


@pytest.mark.parametrize(
    ("name", "there", "value", "holds"),
    [
        ("spark.sql.ansi.enabled", "true", "true", True),
        ("spark.sql.ansi.enabled", "false", "true", False),
        ("spark.sql.ansi.enabled", None, "true", False),
        ("spark.sql.extensions", "other.Extension,io.delta.X", "io.delta.X", True),
        ("spark.sql.extensions", "other.Extension", "io.delta.X", False),
        ("spark.driver.extraJavaOptions", "-Da=1 -Xss4m -Db=2", "-Xss4m", True),
        ("spark.executor.extraJavaOptions", "-Xss40m", "-Xss4m", False),
    ],
)
def test_what_a_server_was_started_with(name, there, value, holds):
    settings = {} if there is None else {name: there}
    assert server_look._has(settings, name, value) is holds


def test_a_warehouse_is_marked_while_a_server_looks_for_it(tmp_path):
    with server_look._marker(str(tmp_path / "new")) as marker:
        assert marker is not None
        assert Path(marker).exists()
    assert list((tmp_path / "new").iterdir()) == []
    with server_look._marker("s3://bucket/warehouse") as marker:
        assert marker is None


def test_the_words_for_another_machine_hold_no_secret(monkeypatch, tmp_path):
    monkeypatch.setattr(session, "spark_jars", lambda _: [tmp_path / "a.jar"])
    extra = {"spark.plugins": "own.Plugin", "spark.hadoop.fs.s3a.secret": "s3cret"}
    settings = with_server(SessionSettings(extra=extra), host="127.0.0.1", port=15002)
    words = shown(settings)
    assert "spark.plugins=own.Plugin,org.apache.spark.sql.connect.SparkConnectPlugin" in words
    assert f"--jars {tmp_path / 'a.jar'}" in words
    assert "spark.connect.grpc.binding.port=15002" in words
    assert "s3cret" not in words


def test_the_same_code_has_the_same_fingerprint_elsewhere(tmp_path):
    words = [
        sys.executable,
        "-c",
        "from replay.spark.package import fingerprint; print(fingerprint())",
    ]
    said = subprocess.run(words, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert said.stdout.strip() == fingerprint()


class OfAnyError(RetriesWhileThere):
    """Takes any error for one of a server that nobody reaches."""

    def can_retry(self, exception):
        return True


def waits_of_a_request(policy) -> list[float]:
    """Ask a server that is gone; return the seconds of each wait before an attempt more."""
    waits: list[float] = []

    def ask():
        for attempt in Retrying(policy, sleep=waits.append):
            with attempt:
                raise ConnectionRefusedError

    with pytest.warns(UserWarning, match="RETRIES_EXCEEDED"), pytest.raises(ConnectionRefusedError):
        ask()
    return waits


def test_once_a_request_was_retried_in_vain_no_other_waits():
    policy = OfAnyError()
    waits = waits_of_a_request(policy)
    assert len(waits) == 5
    assert 16 < sum(waits) < 19
    assert waits_of_a_request(policy) == []


def test_a_port_that_answers_is_enough_for_the_first_question():
    with socket.create_server((LOOPBACK, 0)) as listening:
        connect._check_listening(f"sc://{LOOPBACK}:{listening.getsockname()[1]}")


_ELSEWHERE = """
import pickle, sys, pyarrow as pa

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"changelog", "replay", "views"}:
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Missing())
look = pickle.load(sys.stdin.buffer)
batch = pa.RecordBatch.from_pylist([{"part": 0, "zone": "UTC", "properties": "", "lacks": ""}])
(found,) = look([batch])
print(found.to_pylist()[0]["lacks"])
"""


def test_an_executor_without_the_package_says_so():
    look = cloudpickle.dumps(server_look._task(None, "", fingerprint()))
    words = [sys.executable, "-c", _ELSEWHERE]
    said = subprocess.run(words, input=look, capture_output=True, check=True).stdout.decode()
    assert "this package" in said
    assert "No module named" in said


@pytest.mark.parametrize(("code", "word"), [(None, ""), ("other", "the same version")])
def test_an_executor_with_other_code_says_so(code, word):
    look = server_look._task(None, "", code or fingerprint())
    row = {"part": 0, "zone": "UTC", "properties": "", "lacks": ""}
    (found,) = look([pa.RecordBatch.from_pylist([row])])
    lacks = found.to_pylist()[0]["lacks"]
    assert word in lacks
    assert bool(lacks) is bool(word)
