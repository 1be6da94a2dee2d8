import hashlib
from types import SimpleNamespace

import pytest

from changelog.contract.base.errors import StackError
from changelog.stack.download import artifacts, fetch
from changelog.stack.download.artifacts import Artifact, Pin
from changelog.stack.download.fetch import FetchProgress
from changelog.stack.download.ivy import Ivy

ONE = Artifact("org.example", "one", "1")
TWO = Artifact("org.example", "two", "2", "zip", "all")
CONTENT = {ONE: b"first" * 100, TWO: b"second" * 100}


class Repository:
    """Stands in for Ivy's run: writes what it holds to where Ivy leaves whole files."""

    def __init__(self, content):
        self.content = content
        self.asked = []

    def fetch(self, ivy, wanted, on_poll):
        self.asked.append(list(wanted))
        for artifact in wanted:
            if artifact in self.content:
                path = ivy.file(artifact)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self.content[artifact])
        on_poll()
        return "module not found: org.example#two;2"


@pytest.fixture
def repository(tmp_path, monkeypatch):
    pins = {
        str(each): Pin(hashlib.sha256(content).hexdigest(), len(content))
        for each, content in CONTENT.items()
    }
    monkeypatch.setenv("CHANGELOG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(artifacts, "_locked", lambda: pins)
    source = Repository(dict(CONTENT))

    def run(ivy, wanted, on_poll):
        return source.fetch(ivy, wanted, on_poll)

    monkeypatch.setattr(Ivy, "fetch", run)
    return source


def test_files_are_verified_and_given_in_the_order_asked_for(repository):
    seen: list[FetchProgress] = []
    paths = fetch.resolve([TWO, ONE], seen.append)
    assert [path.read_bytes() for path in paths] == [CONTENT[TWO], CONTENT[ONE]]
    assert seen[-1] == FetchProgress(2, 2, 1100, 1100)


def test_a_second_call_asks_the_repository_for_nothing(repository):
    first = fetch.resolve([ONE, TWO], lambda progress: None)
    assert fetch.resolve([ONE, TWO], lambda progress: None) == first
    assert len(repository.asked) == 1


def test_a_wrong_checksum_is_refused_and_the_file_is_not_kept(repository, tmp_path):
    repository.content[TWO] = b"changed" * 100
    with pytest.raises(StackError, match="wrong checksum"):
        fetch.resolve([TWO], lambda progress: None)
    assert not [path for path in (tmp_path / "cache").rglob("two-*") if path.is_file()]


def test_what_has_arrived_is_kept_and_only_the_rest_is_asked_for_again(repository):
    missing = repository.content.pop(TWO)
    with pytest.raises(StackError, match=r"org\.example:two:2:zip:all.*not found"):
        fetch.resolve([ONE, TWO], lambda progress: None)
    repository.content[TWO] = missing
    repository.asked.clear()
    fetch.resolve([ONE, TWO], lambda progress: None)
    assert repository.asked == [[TWO]]


def test_a_file_that_was_cut_short_in_the_cache_is_fetched_anew(repository):
    (path,) = fetch.resolve([ONE], lambda progress: None)
    path.write_bytes(b"cut")
    (again,) = fetch.resolve([ONE], lambda progress: None)
    assert again.read_bytes() == CONTENT[ONE]


def test_a_file_of_the_right_size_that_is_another_is_fetched_anew(repository, caplog):
    (path,) = fetch.resolve([ONE], lambda progress: None)
    other = CONTENT[ONE].swapcase()
    path.write_bytes(other)
    assert len(other) == path.stat().st_size
    assert fetch.resolve([ONE], lambda progress: None)[0].read_bytes() == CONTENT[ONE]
    assert len(repository.asked) == 2
    assert "is not what was fetched" in caplog.text


def test_a_full_disk_is_named_before_anything_is_fetched(repository, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1))
    with pytest.raises(StackError, match="no space left on the disk"):
        fetch.resolve([ONE], lambda progress: None)
    assert repository.asked == []
