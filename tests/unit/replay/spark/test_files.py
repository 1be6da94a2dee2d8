"""Folders of a warehouse, on this machine and as deltalake sees them."""

from __future__ import annotations

import pytest

from changelog.runtime import stores
from replay.spark import files
from replay.spark.files import Files, can_copy, uri_of


@pytest.fixture(params=["folder", "storage"])
def place(request, tmp_path, monkeypatch):
    """Return a folder of two generations, by its path or by the URI of a storage."""
    for name in ("000001", "000002"):
        (tmp_path / "view" / name / "_delta_log").mkdir(parents=True)
        (tmp_path / "view" / name / "_delta_log" / "0.json").write_text("{}")
        (tmp_path / "view" / name / "part.parquet").write_text("rows")
    if request.param == "folder":
        return str(tmp_path / "view")
    monkeypatch.setattr(stores, "is_here", lambda _: False)
    monkeypatch.setattr(stores, "store_of", lambda _: None)
    monkeypatch.setattr(files, "store_of", lambda _: None)
    return f"file://{tmp_path}/view"


def test_what_is_there_is_listed(place):
    assert Files().names(place) == ["000001", "000002"]
    assert Files().names(f"{place}/000001") == ["_delta_log", "part.parquet"]
    assert Files().names(f"{place}/none") == []
    assert Files().exists(f"{place}/000002")
    assert not Files().exists(f"{place}/000003")
    assert not Files().exists(f"{place}/none/000003")


def test_a_folder_is_removed_with_all_in_it_and_nothing_beside_it(place, tmp_path):
    Files().remove(f"{place}/000001")
    Files().remove(f"{place}/000009")
    left = {path.relative_to(tmp_path / "view") for path in tmp_path.rglob("*") if path.is_file()}
    assert {path.parts[0] for path in left} == {"000002"}
    assert len(left) == 2


def test_a_warehouse_has_one_name():
    assert uri_of("s3://bucket/warehouse/") == "s3://bucket/warehouse"
    assert uri_of("file:/somewhere") == "/somewhere"


def test_a_file_is_made_once_and_has_a_second_name(place, tmp_path):
    Files().create(f"{place}/000001/vectors.bin", b"\x01")
    with pytest.raises(FileExistsError):
        Files().create(f"{place}/000001/vectors.bin", b"\x02")
    Files().copy(place, "000001/vectors.bin", "000002/vectors.bin")
    Files().remove(f"{place}/000001")
    assert Files().read(f"{place}/000002/vectors.bin") == b"\x01"
    assert Files().sizes(f"{place}/000002")["vectors.bin"] == 1


@pytest.mark.parametrize(
    ("where", "can"),
    [("/data", True), ("file:///data", True), ("s3a://b/w", True), ("hdfs://n/w", False)],
)
def test_where_files_get_a_second_name(where, can):
    assert can_copy(where) is can
