"""The files beside a view that say what its author wants of its sinks."""

import pytest

from changelog.contract.base.errors import ViewError
from views.project.catalog import Catalog

SQL = "-- key: id\n-- sinks: delta, search\nSELECT id FROM orders\n"


@pytest.fixture
def project(tmp_path):
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "orders_copy.sql").write_text(SQL)
    return tmp_path


def loaded(project, **files):
    for kind, text in files.items():
        (project / "views" / f"orders_copy.{kind}.json").write_text(text)
    return Catalog.of(project).load("orders_copy")


def test_each_sink_has_those_of_its_file(project):
    spec = loaded(project, search='{"settings": {"number_of_shards": 2}}')
    assert spec.options == {"search": {"settings": {"number_of_shards": 2}}}


def test_a_view_without_files_has_none(project):
    assert loaded(project).options == {}


def test_the_files_of_another_view_with_a_longer_name_are_its_own(project):
    (project / "views" / "orders_copy_2.sql").write_text(SQL)
    (project / "views" / "orders_copy_2.search.json").write_text("{}")
    assert loaded(project).options == {}


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        ("cache", "{}", r'orders_copy.cache.json is for the sink "cache", where view'),
        ("search", "[]", "holds no JSON object"),
        ("search", "{", "orders_copy.search.json cannot be used: .* line 1"),
        ("search", '{"a": {"b": 1, "b": 2}}', '"b" stands twice'),
        ("search", "\udcff", "cannot be used"),
    ],
)
def test_what_cannot_be_used_is_told(project, kind, text, says):
    path = project / "views" / f"orders_copy.{kind}.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ViewError, match=says):
        loaded(project)


def test_a_file_that_leads_out_of_the_project_is_refused(project, tmp_path_factory):
    other = tmp_path_factory.mktemp("other") / "options.json"
    other.write_text("{}")
    (project / "views" / "orders_copy.search.json").symlink_to(other)
    with pytest.raises(ViewError, match="leads out of the project"):
        loaded(project)
