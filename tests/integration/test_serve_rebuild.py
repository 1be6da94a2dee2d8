"""Rebuilds as connectors of `changelog serve`: their result, their failure, whose projects."""

import uuid

import httpx
import pytest

from tests.support.captured_project import captured_database
from tests.support.connect_workers import curl, running, states
from tests.support.wait import wait_until

DEADLINE_S = 300  # Spark's start, on a machine that does other things besides


def _trace(url, name):
    wait_until(lambda: states(url, name) == ["FAILED"], DEADLINE_S, "it has failed")
    return httpx.get(f"{url}/connectors/{name}/status").json()["tasks"][0]["trace"]


@pytest.mark.matrix
def test_a_project_elsewhere_or_without_views_is_refused_and_said(stack, prefix, tmp_path):
    (tmp_path / "in" / "empty").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "in" / "link").symlink_to(tmp_path / "out")
    rebuild = {"connector.class": "changelog.Rebuild", "views": "v"}
    words = ["--projects", str(tmp_path / "in")]
    with running(stack.endpoints(), f"g{uuid.uuid4().hex[:8]}", *words) as (url, *_):
        for project, why in (("empty", "code 2"), ("link", "no project link"), ("x", "project x")):
            said = {"name": f"{prefix}-{project}", "config": {**rebuild, "project": project}}
            assert curl("POST", f"{url}/connectors", said)[0] == 201
            assert why in _trace(url, f"{prefix}-{project}")
        outside = {"name": "n", "config": {**rebuild, "project": "../out"}}
        assert curl("POST", f"{url}/connectors", outside)[0] == 400


def test_a_worker_without_projects_rebuilds_none(stack, prefix):
    rebuild = {"connector.class": "changelog.Rebuild", "views": "v", "project": "p"}
    with running(stack.endpoints(), f"g{uuid.uuid4().hex[:8]}") as (url, *_):
        curl("POST", f"{url}/connectors", {"name": prefix, "config": rebuild})
        assert "--projects" in _trace(url, prefix)


@pytest.mark.matrix
def test_a_rebuild_tells_its_result_and_is_not_done_again(stack, prefix, tmp_path):
    tables = "CREATE TABLE t (id int PRIMARY KEY, a text); INSERT INTO t VALUES (1, 'x'), (2, 'y')"
    rebuild = {"connector.class": "changelog.Rebuild", "views": "v", "project": "p"}
    words = ["--projects", str(tmp_path)]
    group = f"g{uuid.uuid4().hex[:8]}"
    with captured_database(stack, tmp_path / "p", tables) as (project, _):
        project.view("v.sql", "-- key: id\nSELECT id, a FROM t")

        def result(url):
            tasks = httpx.get(f"{url}/connectors/{prefix}/status").json().get("tasks")
            return (tasks or [{}])[0].get("result")

        with running(stack.endpoints(), group, *words) as (url, *_):
            curl("POST", f"{url}/connectors", {"name": prefix, "config": rebuild})
            wait_until(lambda: result(url), DEADLINE_S, "it has run")
            first = result(url)
            assert first["code"] == 0, first
            assert [each["view"] for each in first["views"]] == ["v"]
            assert states(url, prefix) == ["RUNNING"]
        assert [row["a"] for row in project.delta("v")] == ["x", "y"]
        with running(stack.endpoints(), group, *words) as (url, *_):
            wait_until(lambda: states(url, prefix) == ["RUNNING"], DEADLINE_S, "it is there again")
            assert result(url) == first
            curl("POST", f"{url}/connectors/{prefix}/tasks/0/restart")
            wait_until(lambda: result(url) != first, DEADLINE_S, "asked again, it runs again")
            assert result(url)["code"] == 0
    assert {number for number, _ in project.history("v")} == {1, 2}
