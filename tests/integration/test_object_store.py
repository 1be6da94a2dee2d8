"""A warehouse on an S3-compatible store: written, refreshed, read by others, rolled back."""

import re

import duckdb
import pytest
from deltalake import DeltaTable, QueryBuilder

from changelog.contract.base.errors import ConfigurationError, UnavailableError
from tests.support.captured_project import captured_database
from tests.support.object_store import SECRET, object_store
from tests.support.own_session import own_session

pytestmark = [pytest.mark.services, pytest.mark.spark]
SOURCE = """
CREATE TABLE orders (id int PRIMARY KEY, total numeric(12, 2), at timestamptz);
INSERT INTO orders SELECT n, n * 0.25, to_timestamp(n) FROM generate_series(1, 2000) AS n;
"""
VIEW = "-- key: id\nSELECT id, total, at FROM orders\n"
PLACE = "s3://lake/views/orders_kept"


@pytest.fixture
def store(tmp_path):
    with object_store(tmp_path) as running:
        running.make_bucket("lake")
        yield running


@pytest.fixture
def project(stack, tmp_path):
    with captured_database(stack, tmp_path / "project", SOURCE) as (made, _):
        with (made.root / "changelog.toml").open("a") as settings:
            settings.write('[rebuild]\nwarehouse = "s3://lake/views"\ndeletion_vectors = true\n')
        made.view("orders_kept.sql", VIEW)
        yield made


def rows_of(place, options):
    """Read a table as delta-rs does, and as DuckDB does what that gives."""
    engine = QueryBuilder().register("t", DeltaTable(place, storage_options=options))
    found = engine.execute("SELECT id, total FROM t").read_all()
    return duckdb.from_arrow(found).order("id").fetchall()


@pytest.mark.matrix
def test_views_in_a_store_that_speaks_s3(store, project):
    def rebuilt(*more):
        ran = session.run("rebuild-view", "orders_kept", "--project", str(project.root), *more)
        assert ran["code"] == 0, ran["err"]
        return ran["results"]

    def is_right(wanted):
        assert rows_of(PLACE, store.environ) == wanted
        assert session.run("count", PLACE) == {"rows": len(wanted)}

    first = project.query("SELECT id, total FROM orders ORDER BY id")
    with own_session(store.environ) as session:
        (result,) = rebuilt("--json", "--refresh", "--verify", "full")
        assert (result["generation"], result["verified"]) == (1, True)
        is_right(first)
        names = store.names("lake")
        assert {name.split("/")[1] for name in names} >= {"orders_kept", "_history", "_checkpoints"}

        project.execute("UPDATE orders SET total = 0 WHERE id = 7; DELETE FROM orders WHERE id = 8")
        project.capture()
        (result,) = rebuilt("--json", "--refresh", "--verify", "full")
        assert (result["generation"], result["verified"]) == (2, True)
        # Files of the first generation got second names in the store, beside marks and new rows.
        held = [each for each in store.names("lake") if "/_generations/000002/" in each]
        assert any(each.endswith(".bin") for each in held), held
        is_right(project.query("SELECT id, total FROM orders ORDER BY id"))

        rebuilt("--rollback")
        is_right(first)

        told = session.run("settings")
        assert told["hadoop"]["fs.s3a.bucket.lake.endpoint"] == store.url
        assert not [name for name, value in told["spark"].items() if SECRET in value]
        # Spark itself gives Hadoop what the environment says, under names that it does not show.
        named = [name for name, value in told["hadoop"].items() if SECRET in value]
        assert all(re.search(told["spark"]["spark.redaction.regex"], name) for name in named)

        store.stop()
        words = ["rebuild-view", "orders_kept", "--project", str(project.root), "--json"]
        ran = session.run(*words)
        assert ran["code"] == UnavailableError.exit_code, ran["err"]
        assert "the store of the warehouse s3://lake/views does not answer" in ran["err"]


def test_a_bucket_that_is_not_there_is_said_before_anything_is_read(store, project):
    path = project.root / "changelog.toml"
    path.write_text(path.read_text().replace("s3://lake/", "s3://nowhere/"))
    with own_session(store.environ) as session:
        ran = session.run("rebuild-view", "orders_kept", "--project", str(project.root))
    assert ran["code"] == ConfigurationError.exit_code, ran["err"]
    assert "the warehouse s3://nowhere/views cannot be written: there is no such" in ran["err"]
