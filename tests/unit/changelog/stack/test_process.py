import signal
import subprocess
import sys

import psutil
import pytest

from changelog.stack.base.process import (
    Launch,
    ProcessMark,
    ended,
    family,
    read_mark,
    send,
    spawn,
    stray,
    wait_until,
    write_mark,
)

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def sleeper(tmp_path):
    mark = spawn(Launch(argv=SLEEPER, cwd=tmp_path), tmp_path / "log")
    process = psutil.Process(mark.pid)
    yield mark
    send([process], signal.SIGKILL)
    assert ended([process], 10)


def test_a_mark_finds_its_process_as_long_as_it_lives(sleeper):
    process = sleeper.process()
    assert process is not None
    assert process.pid == sleeper.pid
    send([process], signal.SIGKILL)
    assert ended([process], 10)
    assert sleeper.process() is None


def test_a_pid_that_now_belongs_to_another_process_is_stale(sleeper):
    assert ProcessMark(sleeper.pid, sleeper.started - 5.0).process() is None


def test_a_process_that_ended_without_being_waited_for_is_stale():
    child = subprocess.Popen([sys.executable, "-c", ""])
    mark = ProcessMark(child.pid, psutil.Process(child.pid).create_time())
    assert wait_until(lambda: mark.process() is None, 10)
    child.wait()


def test_a_mark_survives_its_file_and_a_torn_file_is_no_mark(tmp_path, sleeper):
    path = tmp_path / "process.json"
    write_mark(path, sleeper)
    assert read_mark(path) == sleeper
    path.write_text(path.read_text()[:10])
    assert read_mark(path) is None
    assert read_mark(tmp_path / "missing") is None


def test_a_process_that_works_in_our_directory_is_found_without_its_pid_file(tmp_path, sleeper):
    name = psutil.Process(sleeper.pid).name()
    assert [each.pid for each in stray([tmp_path], name)] == [sleeper.pid]
    assert stray([tmp_path], "postgres") == []
    assert stray([tmp_path / "other"], name) == []


def test_a_family_holds_the_children(tmp_path):
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)
    process = psutil.Process(parent.pid)
    assert wait_until(lambda: len(family(process)) == 2, 10)
    members = family(process)
    parent.communicate()
    assert ended(members, 10)
