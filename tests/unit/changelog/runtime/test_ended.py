"""A child is waited for, asked to end, and killed if it does not."""

import subprocess
import sys
import threading

import pytest

from changelog.runtime.process.ended import wait_or_end

STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); "


def started(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def test_the_end_of_a_child_is_waited_for() -> None:
    with started("raise SystemExit(3)") as process:
        assert not wait_or_end(process, threading.Event(), end_s=20)
        assert process.returncode == 3


@pytest.mark.parametrize(("code", "end_s", "kills"), [("", 20, 0), (STUBBORN, 0.1, 1)])
def test_one_that_is_asked_to_end_does_or_is_killed(code: str, end_s: float, kills: int) -> None:
    stop, killed = threading.Event(), list[int]()
    waits = "print(1, flush=True); import sys; sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code + waits], stdin=-1, stdout=-1, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        stop.set()
        assert wait_or_end(process, stop, end_s=end_s, killed=lambda: killed.append(1))
        assert process.returncode == (-9 if kills else -15)
    assert len(killed) == kills


def test_no_child_outlives_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    with started("import time; time.sleep(60)") as process:
        with pytest.raises(KeyboardInterrupt):
            wait_or_end(process, Interrupted(), end_s=1)
        assert process.returncode == -9
