"""A shop with three views: documents in search, entries in a cache, totals in a database."""

import dataclasses
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from psycopg2.extensions import make_dsn
from rich.console import Console

from changelog.config import load_project
from changelog.runtime.tls_trust import authorities
from changelog.stack.base.state import Endpoints
from changelog.stack.stack import Stack
from tests.support.captured_project import CapturedProject, captured_database
from tests.support.sql import execute
from views.base.config import RebuildSettings, RowsSource, VerifyMode
from views.base.progress import Stages
from views.project.catalog import Catalog
from views.rebuild.follow import Follower
from views.rebuild.rebuild import RebuildRun
from views.rebuild.resident import Resident
from views.rebuild.sending import sending

TABLES = """
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE orders (
    id int PRIMARY KEY, customer_id int NOT NULL, amount numeric(10, 2) NOT NULL, placed timestamptz
);
CREATE TABLE lines (order_id int, no int, sku text, PRIMARY KEY (order_id, no));
INSERT INTO customers SELECT n, 'name ' || n FROM generate_series(1, 30) AS n;
INSERT INTO orders SELECT n, 1 + n % 20, n * 0.5, timestamptz '2026-01-01Z' + n * interval '1 hour'
FROM generate_series(1, 200) AS n;
INSERT INTO lines SELECT n, no, 'SKU-' || n + no
FROM generate_series(1, 150) n, generate_series(1, 2) no;
"""
DOCUMENTS = """-- key: id
-- sinks: search
SELECT o.id, o.amount, o.placed, c.name,
    collect_list(struct(l.no, l.sku)) FILTER (WHERE l.no IS NOT NULL) AS lines
FROM orders o JOIN customers c ON c.id = o.customer_id LEFT JOIN lines l ON l.order_id = o.id
GROUP BY o.id, o.amount, o.placed, c.name
"""
ENTRIES = """-- key: customer_id, id
-- sinks: cache
SELECT id, customer_id, amount FROM orders WHERE amount > 3
"""
TOTALS = """-- key: customer_id
-- sinks: postgres
SELECT o.customer_id, c.name, count(*) AS orders, sum(o.amount) AS amount
FROM orders o JOIN customers c ON c.id = o.customer_id GROUP BY o.customer_id, c.name
"""


@dataclasses.dataclass
class Shop:
    """The tables, three views of them, and what their readers see."""

    project: CapturedProject
    endpoints: Endpoints
    target: str
    names: dict

    def change(self, statements):
        self.project.execute(statements)
        self.project.capture()

    @property
    def specs(self):
        return Catalog.of(self.project.root).load_all()

    def settings(self, *, verify=VerifyMode.CHANGED, **settings):
        project = load_project(self.project.root)
        settings = {"source": RowsSource.REFRESH, "forward": True, **settings}
        return RebuildSettings(project=project, verify=verify, **settings)

    def round(self, **settings):
        made = RebuildRun(self.settings(**settings), Stages(Console(quiet=True)))
        return made.run(self.specs)

    @contextmanager
    def followed(self, *, before=lambda _: None, patience_s=60.0, is_here=True, **settings):
        """Give a follower that has made its first round, which is Spark's.

        `is_here`: whether the next one is made without Spark.

        Its rounds wait for sinks for so long: a busy machine may take a while.
        """
        wanted = self.settings(**settings)

        def stages():
            return Stages(Console(quiet=True), before)

        with (
            pytest.MonkeyPatch.context() as patched,
            Resident(wanted) as resident,
            Follower(
                self.specs, wanted, resident, stages=stages, stop=lambda: False, make=RebuildRun
            ) as follower,
        ):
            patched.setattr(sending, "PATIENCE_S", patience_s)
            outcome = follower.round()
            assert outcome is not None
            assert outcome.error is None, outcome.error
            assert follower.is_here is is_here
            yield follower

    def documents(self):
        body = {"size": 1000, "sort": ["id"], "query": {"match_all": {}}}
        url = f"{self.endpoints.search}/{self.names['documents']}/_search"
        found = httpx.post(url, json=body, verify=authorities()).raise_for_status().json()
        rows = [hit["_source"] for hit in found["hits"]["hits"]]
        for row in rows:
            row["lines"].sort(key=lambda line: line["no"])
        return rows

    def entries(self):
        client: Any = redis.Redis.from_url(str(self.endpoints.cache), decode_responses=True)
        view = self.names["entries"]
        prefix = f"{view}:{client.get(f'{view}:current')}:"
        found = {k: client.get(k) for k in client.scan_iter(f"{prefix}*", count=1000)}
        return {k.removeprefix(prefix): json.loads(v) for k, v in found.items()}

    def totals(self):
        return execute(self.target, f"SELECT * FROM {self.names['totals']} ORDER BY customer_id")

    def is_right(self):
        """The invariant: what readers see is what the source would answer."""
        documents = self.project.query(
            "SELECT o.id, o.amount::text, c.name, coalesce((SELECT json_agg(json_build_object("
            "'no', no, 'sku', sku) ORDER BY no) FROM lines WHERE order_id = o.id), '[]') "
            "FROM orders o JOIN customers c ON c.id = o.customer_id ORDER BY o.id"
        )
        seen = [(d["id"], d["amount"], d["name"], d["lines"]) for d in self.documents()]
        assert seen == documents
        entries = self.project.query(
            "SELECT customer_id, id, amount::text FROM orders WHERE amount > 3"
        )
        assert self.entries() == {
            f"[{customer},{order}]": {"id": order, "customer_id": customer, "amount": amount}
            for customer, order, amount in entries
        }
        assert self.totals() == self.project.query(
            "SELECT o.customer_id, c.name, count(*), sum(o.amount) FROM orders o "
            "JOIN customers c ON c.id = o.customer_id GROUP BY 1, 2 ORDER BY 1"
        )


@contextmanager
def target_database(endpoints: Endpoints) -> Iterator[str]:
    name = f"target_{uuid.uuid4().hex[:10]}"
    execute(endpoints.postgres, f"CREATE DATABASE {name}")
    yield make_dsn(endpoints.postgres, dbname=name)
    execute(endpoints.postgres, f"DROP DATABASE {name} WITH (FORCE)")


def aim(project: CapturedProject, url: str, more: str = "") -> None:
    """Let views of a project go to a database; `more` is text of other settings."""
    path = project.root / "changelog.toml"
    path.write_text(f"sinks.postgres.url = {json.dumps(url)}\n" + path.read_text("utf-8") + more)


def generations(outcome):
    return {result.view: result.generation for result in outcome.results}


@contextmanager
def opened_shop(stack: Stack, folder: Path) -> Iterator[Shop]:
    """Capture the tables of a shop, and build its views once."""
    endpoints = stack.endpoints()
    with (
        target_database(endpoints) as url,
        captured_database(stack, folder, TABLES) as (project, _),
    ):
        aim(project, url)
        names = {
            kind: f"{kind}_{uuid.uuid4().hex[:8]}" for kind in ("documents", "entries", "totals")
        }
        for kind, text in {"documents": DOCUMENTS, "entries": ENTRIES, "totals": TOTALS}.items():
            project.view(f"{names[kind]}.sql", text)
        made = Shop(project, endpoints, url, names)
        assert made.round().error is None
        yield made
