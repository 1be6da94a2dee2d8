"""The file of `changelog capture --into`: who makes it, and when it is removed again."""

import fcntl

import pytest

from changelog.capture.lines.command import opened
from changelog.capture.lines.file import LineFile
from changelog.contract.base.errors import LogError, SourceError


def test_a_refused_start_leaves_no_file(tmp_path):
    path = tmp_path / "changes.jsonl"
    with pytest.raises(SourceError), opened(path):
        raise SourceError("refused")
    assert not path.exists()


def test_a_file_with_a_line_or_that_was_there_stays(tmp_path):
    written, empty = tmp_path / "changes.jsonl", tmp_path / "empty.jsonl"
    empty.touch()
    for path, line in [(written, b"{}\n"), (empty, b""), (written, b"")]:
        with opened(path) as target:
            target.write(line)
    assert (written.read_bytes(), empty.read_bytes()) == (b"{}\n", b"")


def test_another_capture_is_refused_and_removes_nothing(tmp_path):
    path = tmp_path / "changes.jsonl"
    with opened(path):
        with pytest.raises(LogError, match="another capture writes"), opened(path):
            pass
        assert path.exists()


def test_a_file_that_is_removed_while_it_is_opened_is_made_again(tmp_path, monkeypatch):
    path = tmp_path / "changes.jsonl"
    first = LineFile.open(path)
    flock, waiting = fcntl.flock, [first]

    def late(descriptor, how):
        while waiting:
            waiting.pop().close()
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    second = LineFile.open(path)
    second.write(b"{}\n")
    second.close()
    assert path.read_bytes() == b"{}\n"
    assert [*tmp_path.iterdir()] == [path]
