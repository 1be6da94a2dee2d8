"""When a schedule is due, by a clock that a test moves."""

from datetime import UTC, datetime, timedelta

import pytest

from changelog.contract.base.errors import ConfigurationError, UnavailableSourceError
from changelog.publish.rows import bare, relation_of
from changelog.runtime.cron import CronSchedule, repeat
from tests.support.builders import INTEGER


class Clock:
    def __init__(self, start):
        self.now = start

    def wait(self, seconds):
        assert 0 < seconds <= 0.5
        self.now += timedelta(seconds=seconds)


def test_each_moment_comes_once_and_what_passed_in_a_long_run_is_left_out():
    clock = Clock(datetime(2026, 1, 31, 2, 59, 50, tzinfo=UTC))
    moments = CronSchedule("* * * * *").moments(
        lambda: False, now=lambda: clock.now, wait=clock.wait
    )
    assert next(moments) == datetime(2026, 1, 31, 3, 0, tzinfo=UTC)
    assert clock.now == datetime(2026, 1, 31, 3, 0, tzinfo=UTC)
    clock.now += timedelta(minutes=5, seconds=10)
    assert next(moments) == datetime(2026, 1, 31, 3, 6, tzinfo=UTC)


def test_who_is_stopped_waits_no_longer():
    clock = Clock(datetime(2026, 1, 31, 2, 0, tzinfo=UTC))
    stop = datetime(2026, 1, 31, 2, 0, 5, tzinfo=UTC)
    schedule = CronSchedule("0 3 * * *")
    moments = schedule.moments(lambda: clock.now >= stop, now=lambda: clock.now, wait=clock.wait)
    assert list(moments) == []
    assert clock.now == stop


def test_a_run_that_fails_is_told_and_the_next_one_comes(monkeypatch, capsys):
    monkeypatch.setattr(CronSchedule, "moments", lambda self, stop, *, wait: iter("abc"))
    runs = []

    def run():
        runs.append("run")
        if len(runs) == 1:
            raise UnavailableSourceError("nobody answers")

    repeat("0 3 * * *", run, lambda: False)
    assert len(runs) == 3
    assert "error: nobody answers" in capsys.readouterr().err

    def misused():
        raise ConfigurationError("no such column")

    with pytest.raises(ConfigurationError):
        repeat("0 3 * * *", misused, lambda: False)


@pytest.mark.parametrize("expression", ["", "now and then", "61 * * * *", "0 0 31 2 *"])
def test_what_is_no_schedule_is_refused(expression):
    with pytest.raises(ConfigurationError):
        CronSchedule(expression)


def test_a_query_stands_in_brackets_with_names_of_its_own():
    assert bare("SELECT 1\n;\n") == "SELECT 1\n"
    for columns, key in (([("a", INTEGER), ("a", INTEGER)], ()), ([("a", INTEGER)], ("b",))):
        with pytest.raises(ConfigurationError):
            relation_of("t", columns, key)
