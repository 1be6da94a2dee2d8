"""A follower checks rows and free disk space before it fills a table."""

from __future__ import annotations

import shutil
import tempfile
from types import SimpleNamespace

import pytest

from changelog.contract.rows.relation import TableName
from views.rebuild.local import room
from views.rebuild.local.room import TooLargeError, fitting, require_few

ORDERS = TableName("public", "orders")


def records(count: int):
    return ((b"key%05d" % number, b"v" * 992, 0, number) for number in range(count))


def test_as_many_rows_as_the_setting_has_are_held_and_one_more_is_not() -> None:
    require_few(ORDERS, 5_000_000, 5_000_000)
    with pytest.raises(TooLargeError, match=r"public.orders has 5,000,001 records, and follow"):
        require_few(ORDERS, 5_000_001, 5_000_000)


@pytest.mark.parametrize(("proves", "free_mb"), [(False, 1.5), (True, 3.0)])
def test_rows_that_have_no_room_are_refused_by_a_sample(
    tmp_path, monkeypatch, proves: bool, free_mb: float
) -> None:
    """A million bytes take one and a half in the file, and as much for the proof."""
    monkeypatch.setattr(room, "_SAMPLE", 100)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    for spare, is_room in ((1.1, True), (0.9, False)):
        free = room._SPARE + int(spare * free_mb * 1_000_000)
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        taken = fitting(ORDERS, records(1_000), 1_000, tmp_path, proves=proves)
        if is_room:
            assert len(list(taken)) == 1_000
        else:
            assert sum(1 for _ in zip(range(99), taken, strict=False)) == 99
            with pytest.raises(TooLargeError, match=r"public.orders take about \d MB in .*free"):
                next(taken)


def test_fewer_rows_than_a_sample_are_not_asked_about(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    assert len(list(fitting(ORDERS, records(50), 50, tmp_path, proves=True))) == 50
