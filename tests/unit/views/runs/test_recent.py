"""Which views a run need not build again."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from views.base.config import VerifyMode
from views.generations.history import DROPPED, PUBLISHED, REFUTED, SEALED, HistoryRow
from views.project.catalog import Catalog
from views.project.definition import declaration_of
from views.runs.recent import is_recent

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR = NOW - timedelta(hours=1)
SERVING = {"delta": 2}


@pytest.fixture
def spec(tmp_path: Path):
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "v.sql").write_text("-- key: id\n-- sinks: delta\nSELECT id FROM t")
    (found,) = Catalog.of(tmp_path).load_all(["v"])
    return found


@pytest.fixture
def rows(spec):
    sealed = HistoryRow(
        view="v", generation=2, state=SEALED, at=NOW - timedelta(minutes=5), rows=9, verified=True,
        sinks=("delta",), certificate={"delta": {"rows_expected": 9}},
        declaration=declaration_of(spec, []),
    )  # fmt: skip
    return [sealed, replace(sealed, state=PUBLISHED, at=NOW)]


def test_what_was_built_since_is_left_out(spec, rows) -> None:
    assert is_recent(spec, rows, SERVING, HOUR, VerifyMode.FULL)


def test_a_rollback_makes_nothing_recent(spec, rows) -> None:
    old = replace(rows[0], generation=1, at=NOW - timedelta(days=1))
    back = replace(old, state=PUBLISHED, at=NOW)
    assert not is_recent(spec, [old, *rows, back], SERVING, HOUR, VerifyMode.FULL)


def test_what_was_refuted_since_is_built(spec, rows) -> None:
    refuted = replace(rows[1], state=REFUTED, verified=False)
    assert not is_recent(spec, [*rows, refuted], SERVING, HOUR, VerifyMode.NONE)
    another = replace(refuted, generation=3)
    rows = [*rows, another]
    assert is_recent(spec, rows, SERVING, HOUR, VerifyMode.FULL), "readers never saw that one"


def test_what_was_built_of_another_history_of_the_source_is_built(spec, rows) -> None:
    rows = [replace(row, epoch=4, lsn="0/10") for row in rows]
    assert is_recent(spec, rows, SERVING, HOUR, VerifyMode.FULL, epoch=4)
    assert not is_recent(spec, rows, SERVING, HOUR, VerifyMode.FULL, epoch=5)


@pytest.mark.parametrize("number", [None, 1])
def test_what_a_sink_lost_is_built(spec, rows, number) -> None:
    assert not is_recent(spec, rows, {"delta": number}, HOUR, VerifyMode.NONE)
    assert not is_recent(spec, rows, {**SERVING, "cache": number}, HOUR, VerifyMode.NONE)


@pytest.mark.parametrize(
    "change",
    [
        {"at": NOW - timedelta(hours=2)},
        {"verified": None},
        {"certificate": {"delta": {"rows_expected": 1}}},
    ],
    ids=["too old", "not proved", "a sample only"],
)
def test_what_was_built_otherwise_is_built(spec, rows, change) -> None:
    rows = [replace(rows[0], **change), rows[1]]
    assert not is_recent(spec, rows, SERVING, HOUR, VerifyMode.FULL)
    assert is_recent(spec, rows, SERVING, HOUR, VerifyMode.NONE) == ("at" not in change)


def test_a_changed_file_other_sinks_and_a_drop_are_built(spec, rows, tmp_path) -> None:
    gone = replace(rows[1], state=DROPPED)
    assert not is_recent(spec, [*rows, gone], SERVING, HOUR, VerifyMode.NONE)
    assert not is_recent(spec, [], SERVING, HOUR, VerifyMode.NONE)
    served = [rows[0], replace(rows[1], sinks=("delta", "cache"))]
    assert not is_recent(spec, served, SERVING, HOUR, VerifyMode.NONE)
    (tmp_path / "views" / "v.sql").write_text("-- key: id\n-- sinks: delta\nSELECT id FROM u")
    (changed,) = Catalog.of(tmp_path).load_all(["v"])
    assert not is_recent(changed, rows, SERVING, HOUR, VerifyMode.NONE)
