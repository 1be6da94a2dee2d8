"""Views that are followed apart: their processes are this one's, and their ends too."""

import os
import sys

import pytest

from tests.support.wait import wait_until
from views.base.failure import RebuildError
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
        try:
            apart.check()
        except RebuildError as error:
            return error
        return None

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


def test_without_a_command_nothing_is_followed_apart():
    with Apart(None) as made:
        assert not made.is_possible
        made.check()
