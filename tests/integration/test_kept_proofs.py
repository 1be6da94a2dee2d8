"""Refreshes that are proved by what changed, on the real servers: nothing is missed by that."""

from __future__ import annotations

import signal
import threading
import uuid
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.support.captured_project import captured_database, rebuild_view
from views.rebuild.one_view import certify
from views.verify.compare.compare import Comparison
from views.verify.kept.manifest import ProofManifest
from views.verify.log.states import FrontierTables
from views.verify.view import verify_view

REPOSITORY = Path(__file__).parents[2]
TABLES = """
CREATE TABLE customers (customer_id int PRIMARY KEY, name text);
CREATE TABLE orders (order_id int PRIMARY KEY, customer_id int, amount numeric(10, 2), seen float8);
"""
ROWS = """
INSERT INTO customers SELECT n, 'name ' || n FROM generate_series(1, 20) AS n;
INSERT INTO orders SELECT n, 1 + n % 20, n * 0.5, '-0' FROM generate_series(1, 200) AS n;
"""
CHANGES = """
INSERT INTO orders VALUES (201, 1, 7, 'NaN');
UPDATE orders SET amount = 1 WHERE order_id = 40;
UPDATE orders SET order_id = 300 WHERE order_id = 60;
DELETE FROM orders WHERE customer_id = 5;
"""
TOUCHED = 14
"""Records of `CHANGES`: one new row, one other, one that moved, ten that are gone."""
VIEW = """-- key: order_id
SELECT order_id, name, amount, seen
FROM orders AS o JOIN customers AS c ON o.customer_id = c.customer_id
"""


@pytest.fixture(scope="module")
def shared(stack, spark, tmp_path_factory):
    with captured_database(stack, tmp_path_factory.mktemp("project"), TABLES) as (made, prefix):
        yield made, prefix


@pytest.fixture
def project(shared):
    made, _ = shared
    made.execute("DELETE FROM customers; DELETE FROM orders;" + ROWS)
    made.capture()
    return made


@pytest.fixture
def view(project):
    for path in (project.root / "views").glob("*.*"):
        path.unlink()
    name = f"v{uuid.uuid4().hex[:12]}"
    project.view(f"{name}.sql", VIEW)
    return name


@pytest.fixture
def run(capsys, monkeypatch, project):
    return partial(rebuild_view, capsys, monkeypatch, project)


@pytest.fixture
def refresh(project, view, run, shared):
    """Refresh after changes; returns the result and the certificate."""

    def refreshed(statements: str, *more: str, code: int = 0):
        if statements:
            project.execute(statements)
        project.capture()
        ran = run(view, "--refresh", "--json", *more)
        assert ran.code == code, ran.err
        (result,) = ran.results
        return result, result["certificates"]["delta"]["certificate"]

    ran = run(view, "--refresh", "--json")
    assert ran.code == 0, ran.err
    return refreshed


def is_what_postgresql_has(project, view) -> None:
    rows = {
        row["order_id"]: (row["name"], row["amount"], row["seen"]) for row in project.delta(view)
    }
    found = project.query(
        "SELECT order_id, name, amount, seen FROM orders JOIN customers USING (customer_id)"
    )
    assert repr(sorted(rows.items())) == repr(sorted((r[0], tuple(r[1:])) for r in found))


def test_a_refresh_is_proved_by_what_changed(project, view, run, refresh, shared) -> None:
    orders, customers = f"{shared[1]}.orders", f"{shared[1]}.customers"
    result, told = refresh(CHANGES)
    assert (result["verified"], result["verify"], told["mode"]) == (True, "changed", "changed")
    assert told["records_read"] == {orders: TOUCHED, customers: 0}
    assert sorted(told["goes_on_from"]) == sorted([orders, customers])
    assert told["rows_expected"] == told["rows_served"] == 191
    assert any("was proved on from LSN" in note for note in told["notes"])
    is_what_postgresql_has(project, view)
    _, again = refresh("UPDATE customers SET name = 'again' WHERE customer_id = 3")
    assert again["records_read"] == {orders: 0, customers: 1}
    is_what_postgresql_has(project, view)


@pytest.mark.matrix
def test_a_full_proof_begins_anew_and_the_next_goes_on_from_it(project, view, refresh, shared):
    orders = f"{shared[1]}.orders"
    result, whole = refresh("DELETE FROM orders WHERE order_id = 7", "--verify", "full")
    assert whole["goes_on_from"] == {}
    assert whole["records_read"][orders] > 200
    _, last = refresh("DELETE FROM orders WHERE order_id = 8")
    assert last["goes_on_from"][orders]["begun"] == result["frontier"]["lsn"]
    is_what_postgresql_has(project, view)


def planting(monkeypatch, plant):
    """Alter what a sink serves just before it is verified."""

    def planted(request, evidence):
        plant(DeltaTable(request.address.location["path"]))
        return verify_view(request, evidence)

    monkeypatch.setattr(certify, "verify_view", planted)


def alter(table: DeltaTable) -> None:
    table.update(predicate="order_id = 100", updates={"amount": "CAST(9.99 AS DECIMAL(10, 2))"})


def remove(table: DeltaTable) -> None:
    table.delete("order_id = 100")


def sign(table: DeltaTable) -> None:
    table.update(predicate="order_id = 100", updates={"seen": "CAST(0 AS DOUBLE)"})


@pytest.mark.matrix
@pytest.mark.parametrize(
    "plant", [alter, *(pytest.param(each, marks=pytest.mark.matrix) for each in (remove, sign))]
)
def test_an_error_under_a_key_that_was_not_touched_is_found(refresh, monkeypatch, plant) -> None:
    with monkeypatch.context() as patch:
        planting(patch, plant)
        result, told = refresh(CHANGES, code=3)
    assert (result["mismatches"], result["published"]) == (1, False)
    assert told["goes_on_from"], "it was found from what is kept"
    _, told = refresh("")
    assert not told["goes_on_from"], "a mismatch leaves nothing to go on from"


@pytest.mark.matrix
def test_the_planting_would_find_a_proof_of_touched_keys_alone(refresh, monkeypatch) -> None:
    """The twin, with the defect that only keys that were touched are compared."""
    monkeypatch.setattr(Comparison, "_where", lambda _: "WHERE order_id IN (201, 40, 60, 300)")
    planting(monkeypatch, alter)
    result, _ = refresh(CHANGES)
    assert result["verified"] is True


@pytest.mark.matrix
@pytest.mark.parametrize("spare", [1, pytest.param(2, marks=pytest.mark.matrix)])
def test_the_log_is_read_ahead_where_spark_leaves_cores(view, run, monkeypatch, spare) -> None:
    threads = set()
    fold = FrontierTables.fold

    def noted(tables, table, **more):
        threads.add(threading.current_thread().name.partition("_")[0])
        return fold(tables, table, **more)

    monkeypatch.setattr(FrontierTables, "fold", noted)
    monkeypatch.setattr(certify, "_spare_cores", lambda _: spare)
    (result,) = run(view, "--json").results
    told = result["certificates"]["delta"]["certificate"]
    assert (result["verified"], "read" in told["stages"]) == (True, True)
    assert threads == {"verify-ahead" if spare > 1 else "rebuild"}
    planting(monkeypatch, alter)
    ran = run(view, "--json")
    assert (ran.code, ran.results[0]["mismatches"]) == (3, 1)


def manifest_at(project, shared, table: str = "orders") -> Path:
    return Path(project.warehouse, "_proved", f"{shared[1]}.{table}", "manifest.json")


def files_at(path: Path) -> set[str]:
    return {each.name for each in path.parent.glob("*.parquet")}


def named_at(path: Path) -> set[str]:
    return {each.name for each in ProofManifest.from_json(path.read_bytes()).files}


@pytest.mark.matrix
def test_a_file_with_a_flipped_bit_is_told_and_the_topic_read(project, refresh, shared) -> None:
    path = manifest_at(project, shared)
    base = path.with_name(ProofManifest.from_json(path.read_bytes()).base.name)
    raw = bytearray(base.read_bytes())
    raw[len(raw) // 3] ^= 4
    base.write_bytes(raw)
    result, told = refresh(CHANGES)
    assert result["verified"] is True
    assert any("broken" in note and "was changed" in note for note in told["notes"])
    assert list(told["goes_on_from"]) == [f"{shared[1]}.customers"]
    _, told = refresh("DELETE FROM orders WHERE order_id = 8")
    assert len(told["goes_on_from"]) == 2


@pytest.mark.matrix
def test_a_view_in_python_has_its_inputs_proved_by_what_changed(project, view, run) -> None:
    (project.root / "views" / f"{view}.sql").unlink()
    project.view(
        f"{view}.py",
        "from views import view\n\n\n"
        '@view(key="order_id", tables=["orders"])\n'
        f"def {view}(orders):\n    return orders\n",
    )
    assert run(view, "--refresh").code == 0
    project.execute(CHANGES)
    project.capture()
    ran = run(view, "--refresh", "--json")
    assert ran.code == 0, ran.err
    told = ran.results[0]["certificates"]["delta"]["certificate"]
    assert list(told["records_read"].values()) == [TOUCHED]


@pytest.mark.slow
@pytest.mark.matrix
def test_a_kill_between_files_and_manifest_loses_nothing(project, view, refresh, shared) -> None:
    path = manifest_at(project, shared)
    before = path.read_bytes()
    project.execute(CHANGES)
    project.capture()
    killed = project.crash(view, "--defect", "die_sealing", also=["--refresh"])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert path.read_bytes() == before
    assert len(files_at(path) - named_at(path)) == 1, "a file that no manifest names"
    result, told = refresh("")
    assert result["verified"] is True
    assert told["records_read"][f"{shared[1]}.orders"] == TOUCHED
    is_what_postgresql_has(project, view)
    assert files_at(path) == named_at(path)
    assert path.read_bytes() != before
