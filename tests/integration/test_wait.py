"""Readers wait for their own write: by the sinks' own word, and never longer than it is of use."""

import json
import re
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from changelog.contract.base.errors import ConfigurationError, ViewError
from changelog.contract.base.lsn import Lsn
from tests.support.captured_project import captured_database
from tests.support.shop import TABLES, Shop, aim, target_database
from tests.support.sql import execute
from views.client import Cache, wait
from views.generations import lock
from views.generations.history import UNCHANGED, GenerationHistory, all_proved_at, as_served
from views.generations.place import place_for
from views.generations.reached import NotReachedError, Wait
from views.rebuild import resident
from views.rebuild.run import forward

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def shop(stack, spark, tmp_path_factory):
    """One view in two sinks, and one that a change of its tables need not touch."""
    own = uuid.uuid4().hex[:8]
    views = {
        "both": "-- key: id\n-- sinks: postgres, cache\nSELECT id, amount FROM orders",
        "named": "-- key: id\n-- sinks: postgres\n"
        "SELECT o.id, c.name FROM orders o JOIN customers c ON c.id = o.customer_id",
    }
    names = {kind: f"{kind}_{own}" for kind in views}
    folder = tmp_path_factory.mktemp("wait") / "project"
    with (
        target_database(stack.endpoints()) as url,
        captured_database(stack, folder, TABLES) as (project, _),
    ):
        aim(project, url)
        for kind, text in views.items():
            project.view(f"{names[kind]}.sql", text)
        made = Shop(project, stack.endpoints(), url, names)
        assert made.round().error is None
        yield made


def lsn_of_now(shop):
    ((text,),) = shop.project.query("SELECT pg_current_wal_insert_lsn()::text")
    return text


@contextmanager
def followed(shop):
    """Give a function that does something while the views are captured and followed."""
    names = [spec.name for spec in shop.specs]
    held = lock.following(place_for(shop.settings()), names)
    with shop.followed() as follower, held, ThreadPoolExecutor(1) as pool:

        def meanwhile(act):
            done = pool.submit(act)
            while not done.done():
                shop.project.capture()
                outcome = follower.round()
                assert outcome is None or outcome.error is None, outcome.error
                assert follower.is_here
            return done.result()

        yield meanwhile


def amount_in_postgres(shop, order):
    ((amount,),) = execute(
        shop.target, f"SELECT amount FROM {shop.names['both']} WHERE id = {order}"
    )
    return amount


def amount_in_cache(shop, order):
    with Cache(shop.names["both"], url=str(shop.endpoints.cache)) as cache:
        return cache.get(order)["amount"]


def written(shop, order):
    """Raise an order's amount; returns the LSN after the commit, and the amount."""
    shop.project.execute(f"UPDATE orders SET amount = amount + 1 WHERE id = {order}")
    lsn = lsn_of_now(shop)
    ((amount,),) = shop.project.query(f"SELECT amount FROM orders WHERE id = {order}")
    return lsn, amount


def test_who_waits_reads_his_own_write_in_each_sink(shop):
    def written_and_read(order):
        lsn, amount = written(shop, order)
        reached = wait(shop.names["both"], lsn, project=shop.project.root, timeout=PATIENCE_S)
        assert amount_in_postgres(shop, order) == amount
        assert amount_in_cache(shop, order) == str(amount)
        assert sorted(reached.sinks) == ["cache", "postgres"]
        assert min(reached.sinks.values()) >= Lsn.parse(lsn)

    with followed(shop) as meanwhile:
        for order in range(40, 45):
            meanwhile(lambda order=order: written_and_read(order))


@pytest.mark.matrix
def test_what_changes_no_row_of_the_view_is_waited_for_too(shop):
    view, root = shop.names["named"], shop.project.root
    statements = (
        "INSERT INTO customers VALUES (700, 'nobody')",  # of its table, but of none of its rows
        "UPDATE lines SET sku = sku || '!' WHERE order_id = 3",  # of another table
        "CREATE TABLE unheard_of ()",  # of none
    )
    with followed(shop) as meanwhile:
        for statement in statements:
            shop.project.execute(statement)
            lsn = lsn_of_now(shop)
            meanwhile(lambda lsn=lsn: wait(view, lsn, project=root, timeout=PATIENCE_S))
            reached = meanwhile(
                lambda: wait(view, project=root, sink="postgres", timeout=PATIENCE_S)
            )
            assert list(reached.sinks) == ["postgres"]


def test_twin_who_looks_at_the_log_alone_reads_old_rows(shop, monkeypatch):
    """The defect: what the log has is taken for what readers see."""
    monkeypatch.setattr(Wait, "_shows", lambda _, __, lsn, record: record.frontier.lsn >= lsn)
    lsn, amount = written(shop, 50)
    shop.project.capture()
    wait(shop.names["both"], lsn, project=shop.project.root, timeout=1)
    assert amount_in_postgres(shop, 50) != amount


@pytest.mark.matrix
def test_what_cannot_come_is_told_at_once(shop):
    view, root = shop.names["both"], shop.project.root
    lsn, _ = written(shop, 51)
    shop.project.capture()
    with pytest.raises(NotReachedError, match="nobody follows or rebuilds it: postgres is at"):
        wait(view, lsn, project=root, timeout=2)
    late = pytest.raises(NotReachedError, match=r"after 1 s: postgres is at .*, the log is at")
    with lock.following(place_for(shop.settings()), [view]), late:
        wait(view, lsn, project=root, timeout=1)
    ahead = str(Lsn(Lsn.parse(lsn) + (1 << 40)))
    with pytest.raises(ConfigurationError, match="lies ahead of the source, which ends at"):
        wait(view, ahead, project=root)
    with pytest.raises(ViewError, match="has no sink delta"):
        wait(view, lsn, project=root, sink="delta")
    shop.project.view("unbuilt.sql", "-- key: id\n-- sinks: postgres\nSELECT id FROM orders")
    try:
        with pytest.raises(ViewError, match='of view "unbuilt" nothing serves yet in postgres'):
            wait("unbuilt", lsn, project=root)
    finally:
        (root / "views" / "unbuilt.sql").unlink()
    assert shop.round().error is None
    reached = wait(view, lsn, project=root, timeout=0)
    assert min(reached.sinks.values()) >= Lsn.parse(lsn)
    ran = waited(shop, view, "--lsn", lsn, "--timeout", "0", "--json")
    assert (ran.returncode, json.loads(ran.stdout)["lsn"]) == (0, lsn)
    assert waited(shop, view, "--lsn", ahead).returncode == 2
    shop.project.execute("UPDATE orders SET amount = amount + 1 WHERE id = 52")
    ran = waited(shop, view, "--sink", "cache", "--timeout", "0")
    assert (ran.returncode, "does not show" in ran.stderr) == (1, True)


def waited(shop, *words):
    command = [sys.executable, "-m", "changelog", "wait", *words]
    command += ["--project", str(shop.project.root)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.matrix
def test_generations_that_rest_are_on_record_and_as_proved_as_before(shop, monkeypatch):
    for module in (forward, resident):
        monkeypatch.setattr(module, "UNCHANGED_EVERY", timedelta(0))
    history = GenerationHistory(shop.settings().warehouse)

    def served(kind):
        return as_served(history.rows([shop.names[kind]]))

    def rests(kind, before):
        after = served(kind)
        assert (after.origin, after.generation) == (UNCHANGED, before.generation)
        assert Lsn.parse(after.lsn) > Lsn.parse(before.lsn)
        assert (after.verified, after.certificate) == (before.verified, before.certificate)
        assert all_proved_at(history.rows(), after.generation) < after.at

    shop.project.capture()
    assert shop.round().error is None
    before = served("both")
    shop.change("UPDATE lines SET sku = 'y' WHERE order_id = 5")
    assert {result.origin for result in shop.round().results} == {UNCHANGED}
    rests("both", before)
    with shop.followed() as follower:
        before = served("both")
        shop.change("UPDATE customers SET name = 'new' WHERE id = 3")
        assert follower.round().error is None
        assert follower.is_here
        rests("both", before)


@pytest.mark.matrix
def test_a_row_may_bear_the_lsn_of_its_last_write(shop):
    """The recipe of the page, carried out."""
    page = Path("docs/read-a-view.md").read_text("utf-8")
    (block,) = re.findall(r"```sql\n(ALTER TABLE.*?)```", page, re.DOTALL)
    *makes, write = (
        block.replace("orders", "receipts").replace("status = 'sent'", "n = 1").split(";\n")[:-1]
    )
    shop.project.execute("CREATE TABLE receipts (id int PRIMARY KEY, n int)")
    shop.project.execute("; ".join(makes))
    shop.project.execute("INSERT INTO receipts VALUES (17, 0)")
    ((inserted,),) = shop.project.query("SELECT lsn FROM receipts")
    ((updated,),) = shop.project.query(write)
    ((now,),) = shop.project.query("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
    assert inserted < updated < now
