"""Views that are followed apart: their processes are this one's, and their ends too."""

import os
import sys

import pytest

from tests.support.wait import wait_until
from views.rebuild import apart as module
from views.rebuild.apart import Apart, FollowCommand

LIVES = "import signal; signal.sigwait([signal.SIGTERM])"


@pytest.fixture
def apart(monkeypatch):
    """Processes that run the text of a Python program in place of a follower."""
    monkeypatch.setattr(module, "own_command", lambda words: [sys.executable, "-c", words[-1]])
    command = FollowCommand(lambda names: names, {"CHANGELOG_TEST_GIVEN": "yes"})
    with Apart(command) as made:
        yield made


def ended(apart):
    def looks():
        apart.check()
        return next(iter(apart.failures()), None)

    return wait_until(looks, 60, "a process has ended")


def test_one_that_lives_is_ended_at_the_end_and_gets_what_was_given(apart, tmp_path):
    told = tmp_path / "told"
    code = f"import os; open({str(told)!r}, 'w').write(os.environ['CHANGELOG_TEST_GIVEN']); {LIVES}"
    apart.add([code])
    apart.begin()
    wait_until(lambda: told.exists() and told.read_text() == "yes", 60, "it has begun")
    apart.check()
    (process,) = apart._running.values()
    apart.__exit__()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


@pytest.mark.parametrize(("code", "ours"), [("raise SystemExit(4)", 4), ("pass", 1)])
def test_the_end_of_one_is_an_error_with_its_code(apart, code, ours):
    apart.add([code])
    apart.begin()
    error = ended(apart)
    assert error.exit_code == ours
    assert "the process that followed" in str(error)


def test_one_that_has_ended_is_started_again_later_each_time(monkeypatch):
    monkeypatch.setattr(module, "own_command", lambda words: [sys.executable, "-c", words[-1]])
    now = [0.0]
    with Apart(FollowCommand(lambda names: names, {}), now=lambda: now[0]) as apart:
        apart.add(["pass"])
        apart.begin()
        for wait_s in (5, 30, 120, 300, 300):
            assert ended(apart)
            now[0] += wait_s - 1
            apart.check()
            assert apart.failures()
            now[0] += 1
            apart.check()
            assert not apart.failures()
        assert ended(apart)
        now[0] += 300
        apart.check()
        now[0] += 600  # it lived long: what ended it before is over
        assert ended(apart)
        now[0] += 5
        apart.check()
        assert not apart.failures()


def test_without_a_command_nothing_is_followed_apart():
    with Apart(None) as made:
        assert not made.is_possible
        made.check()
