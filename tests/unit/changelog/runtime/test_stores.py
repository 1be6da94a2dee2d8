"""Which stores there are, and files in one, by the folders of this machine."""

import pytest

from changelog.config import load_project
from changelog.contract.base.errors import ConfigurationError
from changelog.runtime.stores import check_place, environ_of, files_in, store_of


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("s3://b/w", "s3"),
        ("s3a://b/w", "s3"),
        ("gs://b/w", "gs"),
        ("abfs://c@a.dfs.core.windows.net/w", "abfs"),
        ("abfss://c@a.dfs.core.windows.net/w", "abfs"),
        ("hdfs://namenode:8020/w", "hdfs"),
        ("file:///w", None),
        ("/data/s3", None),
        (None, None),
    ],
)
def test_a_scheme_says_what_store_it_is(place, kind) -> None:
    assert store_of(place) == kind


@pytest.mark.parametrize(
    "place", ["wasbs://c@a/w", "az://c/w", "ftp://ann:hidden@host/w", "s3:///w", "abfss://c/w"]
)
def test_any_other_place_is_refused_with_the_forms_that_there_are(place) -> None:
    with pytest.raises(ConfigurationError, match=r"no bucket|in no store") as raised:
        store_of(place)
    assert "hdfs://NAMENODE:8020/FOLDER" in str(raised.value.hint)
    assert "hidden" not in str(raised.value)


def test_settings_with_a_place_in_no_store_are_refused(tmp_path) -> None:
    (tmp_path / "changelog.toml").write_text("")
    with pytest.raises(ConfigurationError, match="in no store"):
        load_project(tmp_path, needs=()).under("hfds://namenode/w")


@pytest.mark.parametrize(
    "path", ["a%20b", "a?b", "a#b", "a\\b", "/views", "a//b", "./a", "a/../b", "a/."]
)
def test_a_path_that_programs_read_in_different_ways_is_refused(path) -> None:
    with pytest.raises(ConfigurationError, match="in different ways"):
        check_place(f"s3://b/{path}")
    with pytest.raises(ConfigurationError, match="in different ways"):
        check_place(f"hdfs://namenode/{path}")


@pytest.mark.parametrize("path", ["my views", "ü/x"])
def test_in_hdfs_spaces_and_further_letters_are_refused(path) -> None:
    with pytest.raises(ConfigurationError, match="in different ways"):
        check_place(f"hdfs://namenode/{path}")
    check_place(f"gs://b/{path}")


@pytest.mark.parametrize("path", ["", "/", "/my views", "/ü/x", "/a+b=c/x.y/", "/views/"])
def test_a_path_with_other_letters_is_taken(path) -> None:
    check_place(f"s3://b{path}")
    check_place(f"/srv{path}%")


def test_a_task_elsewhere_gets_what_the_environment_says_of_the_store_alone() -> None:
    environ = {"AWS_REGION": "r", "AZURE_STORAGE_ACCOUNT_KEY": "k", "HOME": "/h"}
    assert environ_of("s3://b/w", environ) == {"AWS_REGION": "r"}
    assert environ_of("abfss://c@a/w", environ) == {"AZURE_STORAGE_ACCOUNT_KEY": "k"}
    assert environ_of("/data", environ) == {}


def test_a_folder_that_is_not_there_has_no_files(tmp_path) -> None:
    assert files_in(str(tmp_path / "none")).names() == []
    files = files_in(str(tmp_path / "some"), mkdir=True)
    files.create("a/b", b"1")
    with pytest.raises(FileExistsError):
        files.create("a/b", b"2")
    files.replace("a/b", b"34")
    assert files.names() == ["a/b"]
    assert b"".join(files.chunks("a/b")) == files.read("a/b") == b"34"
