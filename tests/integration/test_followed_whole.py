"""Followed views with queries inside, averages and distinct counts: none needs Spark in a round."""

import uuid

import pytest

from tests.integration.test_forward import CHANGES
from tests.support.captured_project import captured_database
from tests.support.shop import TABLES, Shop, aim, target_database
from tests.support.sql import execute
from views.base.config import RowsSource
from views.rebuild import resident
from views.rebuild.local import whole
from views.rebuild.local.by_spark import BySpark
from views.sinks.values import NotRenderedError

VIEWS = {
    "histogram": """-- key: n
-- sinks: postgres
SELECT n, count(*) AS customers FROM (
    SELECT c.id, count(o.id) AS n FROM customers c LEFT JOIN orders o ON o.customer_id = c.id
    GROUP BY c.id
) t GROUP BY n
""",
    "idle": """-- dialect: postgres
-- key: id
-- sinks: postgres
SELECT c.id, c.name FROM customers c
WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id)
""",
    "averages": """-- key: customer_id
-- sinks: postgres
SELECT o.customer_id, avg(o.amount) AS mean, count(DISTINCT l.sku) AS skus
FROM orders o, lines l WHERE l.order_id = o.id GROUP BY o.customer_id
""",
    "means": """-- dialect: postgres
-- key: customer_id
-- sinks: postgres
SELECT o.customer_id, avg(o.amount) AS mean, avg(o.id) AS mean_id,
    sum(o.amount) / count(*) AS share, max(o.id) / 7 AS sevenths
FROM orders o GROUP BY o.customer_id
""",
    "shares": """-- dialect: postgres
-- key: id
-- sinks: postgres
SELECT o.id, o.amount / o.customer_id AS each, round(100 * o.amount / 3, 2) AS third,
    o.amount / (SELECT sum(a.amount) FROM orders a) AS share
FROM orders o
""",
}


@pytest.fixture(scope="module")
def shop(stack, spark, tmp_path_factory):
    endpoints, folder = stack.endpoints(), tmp_path_factory.mktemp("whole") / "project"
    with (
        target_database(endpoints) as url,
        captured_database(stack, folder, TABLES) as (project, _),
    ):
        aim(project, url)
        names = {name: f"{name}_{uuid.uuid4().hex[:8]}" for name in VIEWS}
        for name, text in VIEWS.items():
            project.view(f"{names[name]}.sql", text)
        shop = Shop(project, endpoints, url, names)
        assert shop.round().error is None
        yield shop


def differing(shop: Shop) -> dict[str, list[tuple]]:
    """Return the rows of each view that only the view has, or only the source's answer."""
    told = {}
    for name, text in VIEWS.items():
        # Spark's average has four digits more than its numbers, PostgreSQL's hangs on these.
        own = "dialect: postgres" in text
        query = text if own else text.replace("avg(o.amount)", "round(avg(o.amount), 6)")
        wanted = set(shop.project.query(query))
        found = set(execute(shop.target, f"SELECT * FROM {shop.names[name]}"))
        if wanted != found:
            told[name] = sorted(wanted - found)[:3] + sorted(found - wanted)[:3]
    return told


def test_what_differs_is_sent_without_spark(shop, monkeypatch):
    monkeypatch.setattr(BySpark, "rows", lambda *_: pytest.fail("Spark has computed rows"))
    with shop.followed() as follower:
        for statements in CHANGES:
            shop.change(statements)
            outcome = follower.round()
            assert outcome.error is None
            # A view of which nothing changed has nothing to prove.
            assert not any(result.verified is False for result in outcome.results)
            assert follower.is_here
            assert not follower.needs_spark
            assert differing(shop) == {}


@pytest.mark.matrix
def test_twin_what_differs_and_is_not_sent_is_missing(shop, monkeypatch):
    with shop.followed() as follower, monkeypatch.context() as patched:
        patched.setattr(whole, "differing", lambda _, after, key: after.select(key).slice(0, 0))
        shop.change("DELETE FROM orders WHERE customer_id IN (7, 8)")
        assert follower.round().error is None
        assert differing(shop)
    # Nobody knows of it but this test: only a new generation from the log brings the rows back.
    assert shop.round(source=RowsSource.START, forward=False).error is None
    assert differing(shop) == {}


@pytest.mark.matrix
def test_values_that_spark_renders_take_a_session_that_stays(shop, monkeypatch):
    def not_rendered(*_):
        raise NotRenderedError("a value")

    with shop.followed() as follower, monkeypatch.context() as patched:
        patched.setattr(resident, "delta_from_arrow", not_rendered)
        patched.setattr(BySpark, "is_alive", False)
        shop.change("INSERT INTO orders VALUES (950, 9, 1, NULL)")
        assert follower.round().error is None
        assert follower.needs_spark
        assert differing(shop) == {}
