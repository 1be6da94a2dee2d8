"""Spark's exceptions become errors that say what to do."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from changelog.contract.base.errors import (
    CorruptRecordError,
    LogError,
    NoFrontierError,
    UnavailableError,
    UnavailableLogError,
    VerdictError,
)
from replay.base.failures import translate, translated
from replay.base.task_faults import FormlessValueError, MarkedError, TaskFault

CORRUPT = '<changelog:corrupt>topic "t", partition 1, offset 2: bad</changelog>'


@pytest.mark.parametrize(
    ("said", "family", "fact"),
    [
        (
            f"Job aborted … [USER_RAISED_EXCEPTION] {CORRUPT} SQLSTATE",
            CorruptRecordError,
            "offset 2",
        ),
        ("x <changelog:escape>NaN\nhere</changelog>", FormlessValueError, "NaN\nhere"),
        (f"{MarkedError(TaskFault.LOST, 'offset 9')}", VerdictError, "vanished from the log"),
        (f"{MarkedError(TaskFault.LOST, 'offset 9')}", VerdictError, "offset 9"),
        (f"{MarkedError(TaskFault.SILENT, 'for 60 s')}", UnavailableLogError, "for 60 s"),
        (f"{MarkedError(TaskFault.REFUSED, 'no right')}", LogError, "no right"),
        ("[KAFKA_DATA_LOSS.X] gone", VerdictError, "vanished"),
        ("[RETRIES_EXCEEDED] The maximum number of retries", UnavailableError, "went away"),
        ("[OPERATION_CANCELED] Operation has been canceled.", UnavailableError, "cancelled"),
        ("[INVALID_HANDLE.SESSION_NOT_FOUND] x", UnavailableError, "Spark Connect server"),
        ("org.apache.kafka.common.errors.TimeoutException: x", UnavailableLogError, "brokers"),
    ],
)
def test_what_is_about_the_log_is_translated(said, family, fact):
    found = translate(PySparkException(said))
    assert type(found) is family
    assert fact in str(found)


def test_a_cause_further_down_counts():
    error = PySparkException("the write failed")
    error.__cause__ = PySparkException(CORRUPT)
    assert isinstance(translate(error), CorruptRecordError)


def test_what_a_server_sends_of_its_exception_s_causes_counts():
    class Sent(PySparkException):
        def getStackTrace(self):  # noqa: N802 - Spark's own name
            return f"org.apache.spark.SparkException\nCaused by: X: {CORRUPT}"

    assert isinstance(translate(Sent("the job was ended")), CorruptRecordError)


def test_what_is_not_about_the_log_passes():
    assert translate(PySparkException("[DIVIDE_BY_ZERO] …")) is None
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"), translated():
        raise PySparkException("[DIVIDE_BY_ZERO]")


def test_an_error_of_ours_stays_what_it_is():
    error = NoFrontierError("none")
    assert translate(error) is error


def test_the_cause_is_kept():
    with pytest.raises(CorruptRecordError) as failed, translated():
        raise PySparkException(CORRUPT)
    assert isinstance(failed.value.__cause__, PySparkException)
