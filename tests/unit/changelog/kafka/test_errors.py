"""One table of what brokers mean, and everybody who asks them goes by it."""

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from changelog.connect import task
from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import LogError, RefusedAccessError, UnavailableError
from changelog.kafka import cluster, errors, scan
from changelog.kafka.errors import MEANINGS, ErrorMeaning, is_passing, log_error, meaning
from changelog.lines import group, reading
from changelog.load import job
from changelog.sink import producer
from replay.base.task_faults import error_of, marked, of_brokers
from replay.broker import probe
from views.leases.topic import LeaseTopic
from views.sinks.base import UnavailableSinkError
from views.sinks.topic import server

KAFKA = KafkaConnection(brokers="127.0.0.1:1")
CODES = sorted(
    code
    for name, code in inspect.getmembers(KafkaError)
    if name.lstrip("_").isupper() and isinstance(code, int) and code
)
BY_THE_TABLE = (
    task, cluster, scan, group, reading, job, producer, probe,
)  # fmt: skip


@pytest.fixture(autouse=True)
def nobody_is_asked(monkeypatch):
    """Where nobody answers, brokers are asked why: not once for each code."""
    monkeypatch.setattr(errors, "refusal", lambda _: "")


LOCKS: Any = SimpleNamespace(_kafka=KAFKA, _topic="locks")


def of_a_task(error):
    """What an error of the brokers is on the driver, when a task of Spark has met it."""
    found = marked(str(of_brokers(log_error(error, kafka=KAFKA))))
    assert found is not None
    return error_of(*found)


CALLERS = {
    "log": lambda error: log_error(error, "cannot write"),
    "replay": lambda error: log_error(KafkaException(error), kafka=KAFKA),
    "task": of_a_task,
    "topic sink": lambda error: server.explained(KAFKA, error, 'topic "x"'),
    "locks": lambda error: LeaseTopic._refused(LOCKS, error),
}


@pytest.mark.parametrize("caller", CALLERS)
def test_each_code_means_the_same_to_everybody(caller):
    for code in CODES:
        error = KafkaError(code)
        known = meaning(error).value
        raised = CALLERS[caller](error)
        assert isinstance(raised, UnavailableError) == known.passes == is_passing(error), error
        assert raised.exit_code == known.error.exit_code, error
        hint = log_error(error, "x").hint
        assert hint, error
        assert raised.hint.partition("; [rebuild] lock")[0] == hint, error


@pytest.mark.parametrize("module", BY_THE_TABLE, ids=lambda module: module.__name__)
def test_modules_have_no_table_of_their_own(module):
    assert module.log_error is log_error


@pytest.mark.parametrize(
    ("code", "means"),
    [
        (KafkaError._ALL_BROKERS_DOWN, ErrorMeaning.AWAY),
        (KafkaError._TIMED_OUT, ErrorMeaning.AWAY),
        (KafkaError.COORDINATOR_NOT_AVAILABLE, ErrorMeaning.BUSY),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, ErrorMeaning.BUSY),
        (KafkaError.NOT_ENOUGH_REPLICAS, ErrorMeaning.BUSY),
        (KafkaError._NOENT, ErrorMeaning.BUSY),
        (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorMeaning.SESSION_LOST),
        (KafkaError._AUTHENTICATION, ErrorMeaning.NOT_LET_IN),
        (KafkaError.SASL_AUTHENTICATION_FAILED, ErrorMeaning.NOT_LET_IN),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, ErrorMeaning.FORBIDDEN),
        (KafkaError.PRODUCER_FENCED, ErrorMeaning.OVERTAKEN),
        (KafkaError.MSG_SIZE_TOO_LARGE, ErrorMeaning.TOO_LARGE),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, ErrorMeaning.MISSING),
        (KafkaError.INVALID_RECORD, ErrorMeaning.REFUSED),
    ],
)
def test_what_codes_mean(code, means):
    assert meaning(KafkaError(code)) is means
    assert "cannot write" in str(log_error(KafkaError(code), "cannot write"))


def test_a_code_has_one_meaning():
    listed = [code for codes in errors._CODES.values() for code in codes]
    assert len(listed) == len(set(listed)) == len(MEANINGS)


@pytest.mark.parametrize("code", [KafkaError._AUTHENTICATION, KafkaError._SSL])
def test_who_is_not_let_in_ends_with_2_at_the_start_and_waits_later(code):
    error = log_error(KafkaError(code), "cannot write")
    assert isinstance(error, RefusedAccessError)
    assert error.exit_code == 2
    assert "[kafka.options]" in error.hint
    found = server.explained(KAFKA, KafkaError(code), "x")
    assert (type(found), found.exit_code) == (server.RefusedAccessSinkError, 2)
    assert isinstance(found, UnavailableSinkError)


def test_brokers_that_do_not_answer_are_asked_why(monkeypatch):
    """A client that is not let in gets no answer, only a timeout."""
    monkeypatch.setattr(errors, "refusal", lambda _: "SASL authentication failed")
    error = KafkaError(KafkaError._TIMED_OUT)
    found = log_error(error, "cannot read", kafka=KAFKA)
    assert type(found) is RefusedAccessError
    assert "sasl.password" in found.hint
    assert type(server.explained(KAFKA, error, "x")) is server.RefusedAccessSinkError
    assert type(of_a_task(error)) is RefusedAccessError


def test_an_error_never_holds_a_password():
    error = log_error(KafkaError(KafkaError._AUTHENTICATION, "sasl.password=canary refused"), "x")
    assert "canary" not in str(error)
    assert isinstance(error, LogError)
