"""Records of some keys leave an archive; what stands for them is what both readers then read."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from changelog.contract.base.errors import LockedError, LogError
from replay.archive import erase as erasing
from replay.archive.erase import erase, remaining
from replay.archive.manifest import ArchiveError
from replay.archive.store import Archive, check
from tests.support.archives import CODEC, SCHEMAS, THINGS, TOPIC, HandArchive
from tests.unit.replay.archive.test_archive import (
    FIRST,
    INSIDE,
    SECOND,
    THIRD,
    at,
    folded,
    found_in,
    inside,
    made,
    verified,
)

__all__ = ["made"]
MARK = "a mark that no other row has"


def body(number: int) -> bytes:
    return CODEC.encode_key((b"%d" % number,))[5:]


def gone(made: HandArchive, *numbers: int) -> erasing.ErasedFiles:
    bodies = {body(number) for number in numbers}
    return erase(made.archive, TOPIC, bodies, key_schema=SCHEMAS.key)


def without(rows: dict[int, str], *numbers: int) -> dict[int, str]:
    return {key: name for key, name in rows.items() if key not in numbers}


def test_each_older_state_is_as_it_was_without_the_keys(made) -> None:
    done = gone(made, 2, 3)
    assert (done.files, done.written, done.records) == (5, 5, 6)
    first, second, third = (segment.record for segment in made.segments)
    for record, rows in ((first, FIRST), (inside(made), INSIDE), (second, SECOND), (third, THIRD)):
        assert folded(made, at(record.frontier.lsn)) == without(rows, 2, 3)
        assert verified(made, record) == without(rows, 2, 3)
    assert "but for keys that were erased" in str(
        found_in(made.archive, None, [THINGS]).cut.verdict
    )
    *_, (_, counts) = check(made.archive)
    assert counts.records == 15 - 6
    assert remaining(made.archive, TOPIC, {body(2), body(3)}) == 0


def test_no_byte_of_the_rows_is_left_and_the_archive_goes_on(made) -> None:
    made.put(7, MARK)
    made.put(8, "stays")
    made.seal()
    assert MARK.encode() in every_byte(made), "what is looked for can be found"
    gone(made, 7)
    assert MARK.encode() not in every_byte(made)
    gone(made, 2)
    made.put(8, "later")
    made.seal()
    assert folded(made) == {**without(THIRD, 2), 8: "later"}
    assert verified(made, made.segments[-1].record) == folded(made)


def every_byte(made: HandArchive) -> bytes:
    files = [path for path in Path(made.archive.root).rglob("*") if path.is_file()]
    tables = [path for path in files if path.suffix == ".parquet" and "frontiers" not in path.name]
    values = []
    for path in tables:  # compressed: a mark is not to be seen in their bytes
        values += [value or b"" for value in pq.read_table(path)["value"].to_pylist()]
    return b"".join([*values, *(path.read_bytes() for path in files)])


def test_a_second_erasure_of_the_same_keys_changes_nothing(made) -> None:
    gone(made, 2)
    before = sorted(path.name for path in Path(made.archive.root).rglob("*"))
    done = gone(made, 2)
    assert (done.written, done.records) == (0, 0)
    assert sorted(path.name for path in Path(made.archive.root).rglob("*")) == before


@pytest.mark.parametrize("moment", ["write", "commit", "remove_superseded"])
def test_a_killed_erasure_is_begun_again(made, monkeypatch, moment) -> None:
    class KilledError(Exception):
        pass

    def killed(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(Archive, moment, killed)
        with pytest.raises(KilledError):
            gone(made, 2)
    rows = without(THIRD, 2) if moment == "remove_superseded" else THIRD
    assert folded(made) == rows
    gone(made, 2)
    assert folded(made) == without(THIRD, 2)
    list(check(made.archive))
    named = {file.name for segment in made.archive.segments() for file in segment.files}
    there = {
        str(path.relative_to(made.archive.root))
        for path in Path(made.archive.root, "segments").rglob("*.parquet")
    }
    assert there == named, "nothing of the killed run is left"


def test_twin_an_archive_that_is_only_told_of_an_erasure_keeps_the_bytes(made, monkeypatch) -> None:
    made.put(7, MARK)
    made.seal()
    monkeypatch.setattr(Archive, "remove_superseded", lambda _: [])
    gone(made, 7)
    assert MARK.encode() in every_byte(made)


def test_a_changed_byte_of_an_erasure_or_a_lost_one_is_refused(made) -> None:
    gone(made, 2)
    gone(made, 3)
    path = Path(made.archive.root) / "erasures" / "00000001.json"
    text = path.read_bytes()
    path.write_bytes(text.replace(b'"number":1', b'"number":2', 1))
    with pytest.raises(ArchiveError, match=r"00000001\.json was altered"):
        made.archive.segments()
    with pytest.raises(LogError, match=r"00000001\.json was altered"):
        verified(made, made.segments[0].record)
    path.unlink()
    with pytest.raises(ArchiveError, match="does not follow the one before"):
        made.archive.segments()
    with pytest.raises(LogError, match="does not follow the one before"):
        verified(made, made.segments[0].record)


def test_two_that_erase_at_once_do_not_both_count(made, monkeypatch) -> None:
    monkeypatch.setattr(Archive, "erasures", lambda _: [])
    gone(made, 2)
    with pytest.raises(LockedError):
        gone(made, 3)


def test_keys_of_another_schema_are_refused(made) -> None:
    with pytest.raises(ArchiveError, match="keys of another schema"):
        erase(made.archive, TOPIC, {body(2)}, key_schema='"long"')
