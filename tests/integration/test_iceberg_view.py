"""From a captured table to a table of Iceberg: proved, compared, refreshed, refused, retired."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg import catalog
from pyiceberg.utils.config import Config
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from tests.support.captured_project import CapturedProject, captured_database, rebuild_view
from views.base.iceberg import IcebergPlace
from views.sinks.iceberg import sink as sink_module
from views.sinks.iceberg import write

pytestmark = [pytest.mark.services, pytest.mark.spark]

TABLES = """
CREATE TABLE orders (id bigint PRIMARY KEY, customer text NOT NULL, amount numeric(10, 2),
    at timestamptz, local timestamp, day date, raw bytea, small smallint, tags text[], u uuid,
    span interval);
INSERT INTO orders SELECT n, 'c' || n % 40, n * 1.25,
    '2020-01-01'::timestamptz + n * interval '1.000001 s', '0044-03-15 12:00:00.000001 BC',
    CASE n % 3 WHEN 0 THEN 'infinity' WHEN 1 THEN '-infinity' ELSE '2024-02-29' END::date,
    decode('00ff', 'hex'), n, ARRAY['a', NULL, 'n' || n], md5(n::text)::uuid, n * interval '1 day'
FROM generate_series(1, 200) n;
"""
COPY = "-- key: id\n-- sinks: iceberg, delta\nSELECT * FROM orders\n"
TOTALS = (
    "-- dialect: postgres\n-- key: customer\n-- sinks: iceberg\n"
    "SELECT customer, count(*) AS orders, sum(amount) AS total FROM orders GROUP BY customer\n"
)
CHANGES = """
UPDATE orders SET amount = amount + 1 WHERE id <= 10; DELETE FROM orders WHERE customer = 'c7';
INSERT INTO orders (id, customer, amount) VALUES (1000, 'new', 5)
"""
WANTED = "SELECT customer, count(*), sum(amount) FROM orders GROUP BY customer ORDER BY 1"


@pytest.fixture
def project(stack, tmp_path):
    with captured_database(stack, tmp_path, TABLES) as (made, _):
        made.view("totals.sql", TOTALS)
        yield made


def place_of(project: CapturedProject, view: str) -> IcebergPlace:
    return IcebergPlace("", f"{project.warehouse}/_iceberg", f"views.{view}")


def totals(project: CapturedProject) -> list[tuple]:
    """Return the rows of the published table."""
    place = place_of(project, "totals")
    with place.opened() as opened:
        rows = opened.load_table(place.table).scan().to_arrow().to_pylist()
    return sorted((row["customer"], row["orders"], row["total"]) for row in rows)


def compared(project: CapturedProject, target: str) -> tuple[int, str]:
    """Compare a copy of the table `orders` with PostgreSQL, as a person does."""
    words = [sys.executable, "-m", "changelog", "verify", "public.orders", "--source", project.dsn]
    words += ["--target", target, "--settle", "0"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    return ran.returncode, ran.stdout + ran.stderr


def test_a_view_is_proved_refreshed_rolled_back_and_its_old_generations_go(
    spark, project, capsys, monkeypatch
):
    done = rebuild_view(capsys, monkeypatch, project, "totals", "--json")
    assert done.code == 0, done.err
    assert [each["verified"] for each in done.results] == [True]
    first = totals(project)
    assert first == project.query(WANTED)
    (old,) = Path(place_of(project, "totals").folder).glob("views/totals/*/000001")
    for option in ("--refresh", "--from=start"):
        project.execute(CHANGES if option == "--refresh" else "DELETE FROM orders WHERE id < 9")
        project.capture()
        done = rebuild_view(capsys, monkeypatch, project, "totals", "--json", option)
        assert done.code == 0, done.err
        assert {each["verified"] for each in done.results} == {True}
        assert totals(project) == project.query(WANTED)
    assert not old.exists()  # two generations are kept
    newest = totals(project)
    assert rebuild_view(capsys, monkeypatch, project, "totals", "--rollback").code == 0
    assert totals(project) not in (first, newest)
    assert rebuild_view(capsys, monkeypatch, project, "totals", "--drop", "--yes").code == 0
    with place_of(project, "totals").opened() as opened:
        assert opened.list_tables("views") == []


def test_each_type_of_a_copy_is_equal_to_postgresql_by_another_reader(
    spark, project, capsys, monkeypatch
):
    project.view("copy.sql", COPY)
    done = rebuild_view(capsys, monkeypatch, project, "copy", "--json", "--certificate")
    assert done.code == 0, done.err
    place = place_of(project, "copy")
    code, said = compared(project, str(place))
    assert (code, "equal" in said) == (0, True), said
    with place.opened() as opened:
        kinds = {f.name: str(f.field_type) for f in opened.load_table(place.table).schema().fields}
    assert kinds == {
        "id": "long", "customer": "string", "amount": "decimal(10, 2)", "at": "timestamptz",
        "local": "timestamp", "day": "date", "raw": "binary", "small": "int",
        "tags": "list<string>", "u": "string", "span": "string",
    }  # fmt: skip
    project.execute("UPDATE orders SET amount = amount + 0.01 WHERE id = 77")
    code, said = compared(project, str(place))
    assert (code, "77" in said) == (3, True), said


def test_twin_a_row_that_is_written_otherwise_is_refuted_and_not_published(
    spark, project, capsys, monkeypatch
):
    assert rebuild_view(capsys, monkeypatch, project, "totals").code == 0
    before = totals(project)
    project.execute(CHANGES)
    project.capture()

    def defective(rows, writer):
        kind = rows.schema["total"].dataType.simpleString()
        less = F.when(F.col("customer") == "c9", F.col("total") - 1).otherwise(F.col("total"))
        return write.load(rows.withColumn("total", less.cast(kind)), writer)

    with monkeypatch.context() as patched:
        patched.setattr(sink_module, "load", defective)
        done = rebuild_view(capsys, monkeypatch, project, "totals")
    assert done.code == 3, done.err
    assert "c9" in done.out + done.err
    assert totals(project) == before
    assert rebuild_view(capsys, monkeypatch, project, "totals").code == 0
    assert totals(project) == project.query(WANTED)


def test_what_cannot_be_served_is_said_with_its_code_and_changes_nothing(
    spark, project, capsys, monkeypatch
):
    settings = project.root / "changelog.toml"
    plain = settings.read_text("utf-8")

    def rebuilt(lines: str) -> tuple[int, str]:
        settings.write_text(lines + plain, encoding="utf-8")
        monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())
        done = rebuild_view(capsys, monkeypatch, project, "totals")
        return done.code, " ".join((done.out + done.err).split())

    code, said = rebuilt('sinks.iceberg.catalogue = "nowhere"\n')
    assert code == 2, said
    assert "the catalogue nowhere of Iceberg cannot be opened" in said
    secret = "c4n4ry"
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__URI", f"sqlite:///{project.root}/shop.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__WAREHOUSE", f"{project.root}/shop")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__S3__SECRET_ACCESS_KEY", secret)
    code, said = rebuilt('sinks.iceberg.catalogue = "shop"\n')
    assert code == 1, said
    assert "create the namespace" in said
    assert secret not in said
    place = IcebergPlace("shop", "", "views.totals")
    with place.opened() as opened:
        opened.create_namespace("views")
        rows = spark.sql("SELECT 'theirs' customer").toArrow()
        opened.create_table(place.table, rows.schema).append(rows)
        code, said = rebuilt('sinks.iceberg.catalogue = "shop"\n')
        assert code == 1, said
        assert "not made for the view" in said
        kept = opened.load_table(place.table).scan().to_arrow().to_pylist()
        assert kept == [{"customer": "theirs"}]
    project.view("totals.iceberg.json", '{"table": "views.our_totals"}')
    code, said = rebuilt('sinks.iceberg.catalogue = "shop"\n')
    assert code == 0, said
    ours = IcebergPlace("shop", "", "views.our_totals")
    with ours.opened() as opened:
        assert opened.load_table(ours.table).scan().to_arrow().num_rows == 40
