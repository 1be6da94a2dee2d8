"""The dbt project of the examples: compiled and built by dbt itself, and rebuilt from the log."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg2.extensions import parse_dsn

from benchmarks.peer_environment import environment_of
from changelog.contract.base.errors import ViewError
from tests.support.captured_project import (
    CapturedProject,
    captured_database,
    rebuild_view,
)
from tests.support.example_files import EXAMPLES
from views.project.catalog import Catalog
from views.project.spec import ViewSpec

pytestmark = [pytest.mark.services, pytest.mark.spark]
# What dbt-core 1.12 depends on is built from files that are not in the package index.
DBT = ("dbt-core==1.11.16", "dbt-postgres==1.11.0")
SHOP = """
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL);
INSERT INTO customers SELECT n, '  the ' || n || ' of it' FROM generate_series(1, 6) n;
CREATE TABLE orders (id int PRIMARY KEY, customer int, placed timestamp, amount numeric(8, 2),
    cancelled boolean NOT NULL);
INSERT INTO orders SELECT n, n % 5 + 1, timestamp '2026-01-01' + n * interval '7 hours', n * 0.37,
    n % 9 = 0 FROM generate_series(1, 60) n;
"""
CHANGES = """
UPDATE orders SET cancelled = NOT cancelled WHERE id % 7 = 0;
DELETE FROM orders WHERE id BETWEEN 20 AND 25;
UPDATE customers SET id = 60, name = 'ÉMILE d''Orsay' WHERE id = 6;
INSERT INTO orders VALUES (100, 60, '2026-03-01', NULL, false);
"""
VIEWS = ("customers", "sales_by_day")


@pytest.fixture(scope="module")
def dbt(tmp_path_factory) -> Path:
    return environment_of(tmp_path_factory.mktemp("dbt") / "venv", *DBT) / "dbt"


@pytest.fixture
def project(stack, tmp_path):
    tables = 'tables = ["public.customers", "public.orders"]'
    root = tmp_path / "shop"
    with captured_database(stack, root, SHOP, capture=tables) as (made, _):
        shutil.copytree(EXAMPLES / "dbt", root, dirs_exist_ok=True)
        made.execute("CREATE SCHEMA marts")
        yield made


@pytest.fixture
def run_dbt(dbt, project) -> Callable[..., None]:
    return dbt_of(dbt, project)


def dbt_of(dbt: Path, project: CapturedProject) -> Callable[..., None]:
    parts = parse_dsn(project.dsn)
    environment = {
        **os.environ,
        "PGHOST": parts["host"],
        "PGPORT": parts["port"],
        "PGUSER": parts["user"],
        "PGDATABASE": parts["dbname"],
        "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
    }

    def run(*words: str) -> None:
        ran = subprocess.run(
            [str(dbt), *words],
            cwd=project.root, env=environment, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr

    return run


def built_by_dbt(project: CapturedProject) -> dict[str, list[tuple[Any, ...]]]:
    return {view: sorted(project.query(f"SELECT * FROM marts.{view}")) for view in VIEWS}


def served(project: CapturedProject) -> dict[str, list[tuple[Any, ...]]]:
    return {view: [tuple(row.values()) for row in project.delta(view)] for view in VIEWS}


def test_models_are_views_with_the_rows_that_dbt_builds(
    project, run_dbt, capsys, monkeypatch
) -> None:
    """A table by its tests, an increment by its `unique_key`, over views and an ephemeral model."""
    settings = project.root / "changelog.toml"
    sink = f"sinks.postgres.url = {json.dumps(project.dsn)}\n"
    settings.write_text(sink + settings.read_text("utf-8"), encoding="utf-8")
    run_dbt("build", "--full-refresh")
    words = ("--all", "--dbt", "target/manifest.json", "--json")
    ran = rebuild_view(capsys, monkeypatch, project, *words)
    assert ran.code == 0, ran.err
    assert [(result["view"], result["verified"]) for result in ran.results] == [
        (view, True) for view in VIEWS
    ]
    assert [result["sinks"] for result in ran.results] == [["delta"], ["delta", "postgres"]]
    before = built_by_dbt(project)
    assert served(project) == before
    assert before["customers"][0][1] == "the 1 of it"

    project.execute(CHANGES)
    project.capture()
    run_dbt("build", "--full-refresh")
    ran = rebuild_view(capsys, monkeypatch, project, *words, "--refresh")
    assert ran.code == 0, ran.err
    assert served(project) == built_by_dbt(project) != before
    assert sorted(project.query("SELECT placed_on, orders, amount FROM sales_by_day")) == sorted(
        project.query("SELECT placed_on, orders, amount FROM marts.sales_by_day")
    )

    # The table stands, so dbt compiles the increment alone: that is no view.
    run_dbt("compile")
    ran = rebuild_view(capsys, monkeypatch, project, "sales_by_day", "--dbt", ".", "--plan")
    assert ran.code == 2
    assert "sales_by_day.sql reads its own table: it was compiled as an increment" in ran.err
    assert "dbt compile --full-refresh" in ran.err
    ran = rebuild_view(capsys, monkeypatch, project, "--list", "--json", "--dbt", ".")
    assert [result["view"] for result in ran.results if "kind" in result] == ["customers"]


Change = Callable[[dict[str, Any]], object]
CUSTOMERS, DAYS, STAGED = (
    "model.shop.customers",
    "model.shop.sales_by_day",
    "model.shop.stg_orders",
)


def change_node(name: str, **members: Any) -> Change:
    return lambda manifest: manifest["nodes"][name].update(members)


def change_config(name: str, **members: Any) -> Change:
    return lambda manifest: manifest["nodes"][name]["config"].update(members)


def remove_tests(manifest: dict[str, Any]) -> None:
    for node in manifest["nodes"].values():
        node.pop("test_metadata", None)


def only_some_rows(manifest: dict[str, Any]) -> None:
    for node in manifest["nodes"].values():
        node["config"]["where"] = "customer_id > 1"


REFUSED: dict[str, tuple[Change, str]] = {
    "customers": (remove_tests, "does not say what its key is"),
    "customers, where": (only_some_rows, "does not say what its key is"),
    "customers, python": (change_node(CUSTOMERS, language="python"), "is in python"),
    "customers, parsed": (change_node(CUSTOMERS, compiled_code=None), "`dbt compile`"),
    "customers, staged": (
        change_node("model.shop.stg_customers", compiled_code=None),
        "model 'stg_customers' of dbt is not compiled",
    ),
    "customers, adapter": (
        lambda manifest: manifest["metadata"].update(adapter_type="redshift"),
        "its project is for redshift",
    ),
    "customers, no manifest": (lambda manifest: manifest.pop("nodes"), "is no manifest of dbt"),
    "customers, meta": (
        change_config(CUSTOMERS, meta={"changelog": {"keys": "id"}}),
        'has meta.changelog = {"keys": "id"}',
    ),
    "sales_by_day, SQL": (
        change_node(DAYS, compiled_code="select 1 as a from public.orders where ("),
        "sales_by_day.sql:1:",
    ),
}


@pytest.fixture(scope="module")
def compiled(stack, dbt, tmp_path_factory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("compiled") / "shop"
    tables = 'tables = ["public.customers", "public.orders"]'
    with captured_database(stack, root, SHOP, capture=tables) as (made, _):
        shutil.copytree(EXAMPLES / "dbt", root, dirs_exist_ok=True)
        dbt_of(dbt, made)("compile")
        yield root


@pytest.mark.parametrize("case", REFUSED)
def test_a_model_that_is_no_view_is_refused_by_name(compiled, tmp_path, case) -> None:
    change, reason = REFUSED[case]
    manifest = json.loads((compiled / "target" / "manifest.json").read_text("utf-8"))
    view = case.partition(",")[0]

    def load() -> ViewSpec:
        (tmp_path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        return Catalog.of(tmp_path, {}, "manifest.json").load(view)

    assert load().name == view
    change(manifest)
    with pytest.raises(ViewError) as refused:
        load()
    assert reason in f"{refused.value} {refused.value.hint}"


def test_keys_come_from_what_dbt_knows(compiled, tmp_path) -> None:
    manifest = json.loads((compiled / "target" / "manifest.json").read_text("utf-8"))

    def key() -> tuple[str, ...]:
        (tmp_path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        return Catalog.of(tmp_path, {}, "manifest.json").load("customers").key

    assert key() == ("customer_id",)
    # As dbt's manifest of its own jaffle-shop has it.
    manifest["semantic_models"] = {
        "semantic_model.shop.customers": {
            "depends_on": {"macros": [], "nodes": [CUSTOMERS]},
            "entities": [
                {"name": "customer", "type": "primary", "expr": "name"},
                {"name": "home", "type": "foreign", "expr": None},
            ],
        }
    }
    assert key() == ("name",)
    constraint = {"type": "primary_key", "columns": ["name", "customer_id"]}
    change_node(CUSTOMERS, constraints=[constraint])(manifest)
    assert key() == ("name", "customer_id")
    change_config(CUSTOMERS, unique_key="customer_id")(manifest)
    assert key() == ("customer_id",)
    change_config(CUSTOMERS, meta={"changelog": {"key": ["name", "orders"]}})(manifest)
    assert key() == ("name", "orders")


def test_options_of_a_sink_go_by_the_alias(compiled, tmp_path) -> None:
    manifest = json.loads((compiled / "target" / "manifest.json").read_text("utf-8"))
    change_node(CUSTOMERS, alias="people")(manifest)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "people.delta.json").write_text("{}", encoding="utf-8")
    assert "delta" in Catalog.of(tmp_path, {}, "manifest.json").load("people").options


def test_a_view_of_the_project_reads_models_and_names_meet_loudly(compiled, tmp_path) -> None:
    folder = tmp_path / "views"
    folder.mkdir()
    manifest = str(compiled)
    (folder / "large.sql").write_text(
        "-- dialect: postgres\n-- key: customer_id\nSELECT * FROM customers WHERE orders > 5",
        encoding="utf-8",
    )
    spec = Catalog.of(tmp_path, {}, manifest).load("large")
    assert {str(table) for table in spec.tables} == {"public.customers", "public.orders"}
    (folder / "customers.sql").write_text("-- key: id\nSELECT id FROM orders", encoding="utf-8")
    with pytest.raises(ViewError, match=r"customers\.sql and model marts\.customers of dbt"):
        Catalog.of(tmp_path, {}, manifest).load("customers")
