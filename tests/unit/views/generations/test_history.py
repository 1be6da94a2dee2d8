"""The history: every column survives, appends at once do not lose each other."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from changelog.contract.base.errors import ChangelogError
from replay.spark.warehouse import SETTINGS
from views.generations.history import (
    DROPPED,
    FAILED,
    PUBLISHED,
    REFUTED,
    RETIRED,
    SEALED,
    GenerationHistory,
    HistoryRow,
    last_states,
    states_of,
)

FULL = HistoryRow(
    view="a",
    generation=3,
    state=PUBLISHED,
    at=datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    run="r",
    epoch=1,
    lsn="0/1",
    ts=datetime(2026, 1, 1, tzinfo=UTC),
    verdict="exact",
    rows=5,
    records_read=9,
    tombstones=2,
    seconds={"write": 1.5},
    verified=True,
    mismatches=0,
    certificate={"sinks": {"delta": {"rows": 5}}},
    sinks=("delta", "cache"),
    note="ö",
    switch_seconds=0.25,
    declaration={"text": "SELECT 1", "key": ["a"], "columns": [["a", "int"]]},
)
BARE = HistoryRow(view="b", generation=1, state=SEALED)


def test_rows_survive_the_table(tmp_path: Path) -> None:
    history = GenerationHistory(str(tmp_path))
    assert history.rows() == []
    history.append([FULL])
    history.append([BARE])
    history.append([])
    assert DeltaTable(tmp_path / "_history").metadata().configuration == SETTINGS
    assert history.rows() == [FULL, BARE]
    assert history.rows(["b"]) == [BARE]


def test_the_newest_row_tells_a_generations_state() -> None:
    later = HistoryRow(view="a", generation=3, state=RETIRED)
    # What was built and proved stays told of a generation that is retired.
    built = replace(FULL, state=RETIRED, at=later.at)
    assert last_states([FULL, BARE, later]) == {("a", 3): built, ("b", 1): BARE}


def test_appends_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    rows = [HistoryRow(view="v", generation=n, state=PUBLISHED) for n in range(12)]

    def append(row: HistoryRow) -> None:
        GenerationHistory(str(tmp_path)).append([row])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, rows))
    kept = sorted(row.generation for row in GenerationHistory(str(tmp_path)).rows())
    assert kept == list(range(12))


def test_states_are_those_of_the_last_rows_of_one_view(tmp_path: Path) -> None:
    history = GenerationHistory(str(tmp_path))
    assert history.states("a") == {}
    history.append([replace(FULL, state=RETIRED, at=datetime.now(UTC)), BARE])
    history.append([FULL, replace(FULL, generation=4, state=SEALED)])
    assert history.states("a") == {3: RETIRED, 4: SEALED}
    assert history.states("b") == {1: SEALED}


def test_appends_while_files_are_put_together_are_all_kept(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("views.generations.history.MANY_FILES", 3)
    rows = [replace(BARE, generation=n) for n in range(30)]

    def append(row: HistoryRow) -> None:
        history = GenerationHistory(str(tmp_path))
        history.append([row])
        history.tidy()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(append, rows))
    history = GenerationHistory(str(tmp_path))
    assert sorted(history.states("b")) == list(range(30))
    history.tidy()
    assert len(DeltaTable(tmp_path / "_history").file_uris()) < 3


def test_rows_of_one_generation_are_found(tmp_path: Path) -> None:
    history = GenerationHistory(str(tmp_path))
    history.append([FULL, BARE, replace(FULL, generation=4)])
    assert history.rows(["a"], generation=3) == [FULL]
    assert history.rows(["b"], generation=3) == []


def test_many_files_become_one_and_no_row_is_lost(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("views.generations.history.MANY_FILES", 10)
    history = GenerationHistory(str(tmp_path))
    history.tidy()
    later = ["definition", "origin", "switch_seconds", "declaration"]
    old = pa.Table.from_pylist([FULL.to_columns()]).drop_columns(later)
    write_deltalake(tmp_path / "_history", old)
    for number in range(4, 12):
        history.append([replace(FULL, generation=number)])
    before = history.rows()
    history.tidy()
    assert len(DeltaTable(tmp_path / "_history").file_uris()) == 9
    history.append([BARE])
    reader = DeltaTable(tmp_path / "_history").to_pyarrow_dataset()
    history.tidy()
    table = DeltaTable(tmp_path / "_history")
    assert len(table.file_uris()) == 1
    assert table.metadata().configuration == SETTINGS
    assert history.rows() == [*before, BARE]
    assert len(before) == 9
    assert reader.count_rows() == 10  # what was replaced stays for those who read it


READ = """
from views.generations.history import GenerationHistory
assert GenerationHistory({!r}).rows(['a'])
"""
BY_DATASET = """
from deltalake import DeltaTable
from views.generations import history
history.read_rows = lambda table, *_: table.to_pyarrow_dataset().to_table()
"""


def ends(place: Path, times: int, defect: str = "") -> set[int]:
    """Return how processes end that read a history and do nothing else."""
    words = [sys.executable, "-c", defect + READ.format(str(place))]
    with ThreadPoolExecutor(4) as pool:
        ran = pool.map(
            lambda _: subprocess.run(words, capture_output=True, check=False).returncode,
            range(times),
        )
        return set(ran)


def appended(place: Path) -> None:
    history = GenerationHistory(str(place))
    for number in range(12):
        history.append([replace(FULL, generation=number)])


def test_whoever_reads_a_history_ends_as_he_means_to(tmp_path: Path) -> None:
    appended(tmp_path)
    assert ends(tmp_path, 8) == {0}


@pytest.mark.matrix
def test_twin_whose_files_are_python_s_is_aborted_at_its_end(tmp_path: Path) -> None:
    appended(tmp_path)
    assert any(ends(tmp_path, 8, BY_DATASET) != {0} for _ in range(20))


def test_names_are_texts_in_sql(tmp_path: Path) -> None:
    history = GenerationHistory(str(tmp_path))
    history.append([replace(FULL, view="it's"), BARE])
    assert [row.view for row in history.rows(["it's"])] == ["it's"]
    assert history.rows([]) == []


def test_a_history_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    history = GenerationHistory(str(tmp_path))
    history.append([FULL])
    for path in (tmp_path / "_history").glob("*.parquet"):
        path.unlink()
    with pytest.raises(ChangelogError, match=r"_history cannot be read: .*"):
        history.rows()


def test_a_history_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "_history").write_text("a file", encoding="utf-8")
    with pytest.raises(ChangelogError, match=r"_history cannot be"):
        GenerationHistory(str(tmp_path)).append([BARE])


def test_a_dropped_view_has_no_generation_of_before() -> None:
    steps = [(1, PUBLISHED), (2, SEALED), (2, DROPPED)]
    assert states_of(steps) == {1: DROPPED, 2: DROPPED}
    assert states_of([*steps, (3, PUBLISHED)]) == {1: DROPPED, 2: DROPPED, 3: PUBLISHED}


def mentions(place: Path, mark: str) -> list[str]:
    """Return the files below a folder that have a mark."""
    files = [path for path in place.rglob("*") if path.is_file()]
    values = {path: path.read_bytes() for path in files}
    for path in files:
        if path.suffix == ".parquet":
            values[path] += repr(pq.read_table(path).to_pylist()).encode()
    return [path.name for path, value in values.items() if mark.encode() in value]


def test_rows_that_proofs_have_noted_leave_the_history_and_all_else_stays(tmp_path: Path) -> None:
    mark = "a-mark-of-one-row"
    differences = [{"key": {"id": "1"}, "served": mark}]
    refuted = {"delta": {"verified": False, "mismatches": 1, "differences": differences}}
    ranges = {"mode": "full", "ranges": [{"from": mark, "to": mark, "hash": "0"}]}
    proved = {"delta": {"verified": True, "notes": ["n"], "certificate": ranges}}
    later = {"delta": {"verified": True, "certificate": {"ranges": [{"from": "a", "to": "b"}]}}}
    history = GenerationHistory(str(tmp_path))
    rows = [
        HistoryRow(view="prices", generation=1, state=PUBLISHED, certificate=proved, note="n"),
        HistoryRow(view="prices", generation=2, state=REFUTED, certificate=refuted, note=mark),
        HistoryRow(view="prices", generation=3, state=FAILED, note=f"no place for {mark}"),
        HistoryRow(view="prices", generation=4, state=PUBLISHED, certificate=later, note="n"),
        HistoryRow(view="others", generation=1, state=FAILED, note="stays"),
    ]
    for row in rows:
        history.append([row])
    identity = history.identity()
    assert mentions(tmp_path, mark)
    assert history.forget_rows({"prices": 4}) == 3
    assert mentions(tmp_path, mark) == []
    assert history.identity() == identity, "locks are named by it"
    after = history.rows()
    assert [(row.view, row.generation, row.state, row.at) for row in after] == [
        (row.view, row.generation, row.state, row.at) for row in rows
    ]
    assert after[0].certificate == {"delta": {"verified": True, "certificate": {"mode": "full"}}}
    assert after[3:] == rows[3:]
    assert history.forget_rows({"prices": 4}) == 0
    history.append([rows[0]])
    assert len(history.rows()) == 6
