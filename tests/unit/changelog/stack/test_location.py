"""Where the data of servers lie under root: what stacks that are gone have left is removed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from changelog.stack.base import location
from changelog.stack.base.location import data_home


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Data of three stacks whose folders are gone."""
    root = tmp_path / "data"
    monkeypatch.setattr(location, "ROOT_DATA", root)
    monkeypatch.setattr(location, "server_user", lambda: (65534, 65534))
    monkeypatch.setattr(location, "is_open_to_all", lambda _: False)
    monkeypatch.setattr(location, "stray", lambda *_: [])
    homes = []
    for name in ("a", "b", "c"):
        home = root / name
        (home / "node").mkdir(parents=True)
        (home / location._OWNER).write_text(str(tmp_path / f"gone-{name}"), "utf-8")
        homes.append(home)
    return homes


def test_what_stacks_that_are_gone_have_left_is_removed(left: list[Path], tmp_path: Path) -> None:
    home = data_home(tmp_path / "stack")
    assert home.is_dir()
    assert [each for each in left if each.exists()] == []
    assert data_home(tmp_path / "stack") == home


def test_another_one_may_remove_the_same_at_the_same_time(
    left: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files go under our hands: that is no reason not to start."""
    sound, met = shutil.rmtree, []

    def raced(path: Path) -> None:
        sound(path)
        met.append(path)
        if len(met) == 1:
            raise FileNotFoundError(2, "No such file or directory", "pgstat.stat")

    monkeypatch.setattr(location.shutil, "rmtree", raced)  # type: ignore[attr-defined]
    assert data_home(tmp_path / "stack").is_dir()
    assert len(met) == 3
    assert [each for each in left if each.exists()] == []
