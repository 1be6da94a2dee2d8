"""A view in two sinks, of which the second refuses to move its readers: the first moves back."""

from __future__ import annotations

import json
import uuid
from contextlib import closing
from functools import partial
from typing import Any

import httpx
import pytest
import redis
from psycopg2.extensions import make_dsn

from changelog.runtime.tls_trust import authorities
from tests.support.captured_project import captured_database, rebuild_view
from tests.support.matrix import first
from tests.support.sql import execute
from views import command
from views.base.progress import Stages
from views.client import Cache
from views.sinks.cache.sink import CacheSink

pytestmark = [pytest.mark.services, pytest.mark.spark]

TABLE = """
CREATE TABLE things (id int PRIMARY KEY, name text NOT NULL);
INSERT INTO things SELECT n, 'thing ' || n FROM generate_series(1, 20) n;
"""
KEYS = range(1, 23)


class Switched:
    """A view in a cache and another sink, which can be told to refuse, and then no more."""

    def __init__(self, project, endpoints, target, user):
        self.project, self._endpoints, self._target = project, endpoints, target
        self._user = user
        self.view = f"things_{uuid.uuid4().hex[:8]}"
        self._cache = Cache(self.view, url=str(endpoints.cache))

    def declare(self, second):
        text = f"-- key: id\n-- sinks: cache, {second}\nSELECT id, name FROM things"
        self.project.view(f"{self.view}.sql", text)

    def refuse(self, second, is_refused):
        """Let the second sink refuse to publish generation 2; nothing else is taken from it."""
        if second == "postgres":
            what = "REVOKE INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA changelog_views FROM"
            if not is_refused:
                what = "GRANT ALL ON ALL TABLES IN SCHEMA changelog_views TO"
            execute(self._target, f"{what} {self._user}")
            return
        url = f"{self._endpoints.search}/{self.view}-000002/_settings"
        body = {"index.blocks.read_only": is_refused}
        httpx.put(url, json=body, verify=authorities()).raise_for_status()

    def source(self):
        return dict(self.project.query("SELECT id, name FROM things"))

    def cached(self):
        rows = self._cache.get_many(list(KEYS))
        return {row["id"]: row["name"] for row in rows if row is not None}

    def served(self, second):
        """Return what readers of the second sink see."""
        if second == "postgres":
            return dict(execute(self._target, f"SELECT id, name FROM {self.view}"))
        url = f"{self._endpoints.search}/{self.view}/_search"
        body = {"size": 1000, "query": {"match_all": {}}}
        found = httpx.post(url, json=body, verify=authorities()).raise_for_status().json()
        return {hit["_source"]["id"]: hit["_source"]["name"] for hit in found["hits"]["hits"]}

    def generation(self):
        client: Any = redis.Redis.from_url(str(self._endpoints.cache), decode_responses=True)
        with closing(client):
            return int(client.get(f"{self.view}:current"))


@pytest.fixture
def switched(stack, tmp_path):
    endpoints = stack.endpoints()
    name = f"switched_{uuid.uuid4().hex[:10]}"
    for statement in (f"CREATE ROLE {name} LOGIN", f"CREATE DATABASE {name} OWNER {name}"):
        execute(endpoints.postgres, statement)
    target = make_dsn(endpoints.postgres, dbname=name)
    execute(target, f"ALTER SCHEMA public OWNER TO {name}")
    with captured_database(stack, tmp_path / "project", TABLE) as (project, _):
        path = project.root / "changelog.toml"
        url = json.dumps(make_dsn(target, user=name))
        path.write_text(f"sinks.postgres.url = {url}\n" + path.read_text("utf-8"))
        yield Switched(project, endpoints, target, name)
    execute(endpoints.postgres, f"DROP DATABASE {name} WITH (FORCE)")
    execute(endpoints.postgres, f"DROP ROLE {name}")


@pytest.fixture
def run(capsys, monkeypatch, spark):
    """Run a rebuild, and something just before it moves readers."""

    def run(made, act=lambda: None):
        def before(stage):
            if stage == "publish":
                act()

        with monkeypatch.context() as patched:
            patched.setattr(command, "Stages", partial(Stages, before=before))
            return rebuild_view(capsys, patched, made.project, made.view, "--json")

    return run


@pytest.fixture
def moves(monkeypatch):
    """The generations to which readers of the cache were moved."""
    sound, noted = CacheSink.publish, []

    def publish(self, generation):
        sound(self, generation)
        noted.append(generation)

    monkeypatch.setattr(CacheSink, "publish", publish)
    return noted


def refused(made, run, second):
    """Build the view, change its rows, and let the second sink refuse the next generation."""
    made.declare(second)
    ran = run(made)
    assert ran.code == 0, ran.err
    before = made.source()
    made.project.execute("UPDATE things SET name = name || '!'; DELETE FROM things WHERE id = 3")
    made.project.capture()
    ran = run(made, lambda: made.refuse(second, True))
    return before, ran


@pytest.mark.matrix
@pytest.mark.parametrize("second", first(1, ["postgres", "search"]))
def test_readers_of_the_first_sink_stay_or_are_moved_back(switched, run, moves, second):
    before, ran = refused(switched, run, second)
    assert ran.code == 1, ran.err
    said = " ".join(ran.err.split())
    assert second in said
    assert "Traceback" not in said
    assert {"postgres": "permission denied", "search": "block"}[second] in said
    (result,) = ran.results
    assert not result["published"]
    # PostgreSQL does its work before any other sink moves.
    assert moves == {"postgres": [1], "search": [1, 2, 1]}[second]
    assert (switched.generation(), switched.cached()) == (1, before)
    assert switched.served(second) == before
    assert switched.project.history(switched.view)[-1] == (2, "failed")
    switched.refuse(second, False)
    ran = run(switched)
    assert ran.code == 0, ran.err
    assert switched.cached() == switched.served(second) == switched.source() != before


@pytest.mark.matrix
def test_twin_that_moves_nobody_back_leaves_the_sinks_apart(switched, run, monkeypatch):
    monkeypatch.setattr("views.generations.swap._move_back", lambda *_: [])
    before, ran = refused(switched, run, "search")
    assert ran.code == 1
    assert switched.served("search") == before
    assert (switched.generation(), switched.cached()) == (2, switched.source())
