"""A query of `changelog publish` over a file of DuckDB only reads."""

from contextlib import closing

import duckdb
import pytest

from changelog.contract.base.errors import ChangelogError
from changelog.publish.duckdb import DuckRows


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "f.duckdb"
    with duckdb.connect(str(made)) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS id, 'a;b' AS name")
    return made


def run(file, query):
    with closing(DuckRows(file, query)) as rows:
        names = [name for name, _ in rows.columns()]
        return names, [len(batch) for batch in rows.lines()]


@pytest.mark.parametrize(
    "query",
    [
        "COPY t TO '{out}'",
        "SELECT 1 AS id; COPY t TO '{out}'",
        "SELECT 1 AS id); COPY t TO '{out}'; SELECT * FROM (SELECT 1 AS id",
        "SELECT 1 AS id); COPY t TO '{out}'; --",
        "ATTACH '{out}' AS other",
        "EXPORT DATABASE '{out}'",
        "SET allow_community_extensions = true",
        "INSTALL httpfs",
        "",
    ],
)
def test_what_is_no_single_select_is_refused(file, tmp_path, query):
    out = tmp_path / "out"
    with pytest.raises(ChangelogError):
        run(file, query.format(out=out))
    assert not out.exists()


@pytest.mark.parametrize(
    "query", ["SELECT * FROM t;", "FROM t -- all;", "WITH w AS (FROM t) SELECT * FROM w", "TABLE t"]
)
def test_one_select_is_run(file, query):
    assert run(file, query) == (["id", "name"], [1])
