"""Roll back and publish on the page: what was confirmed, and only while it is still so."""

from __future__ import annotations

import html
import os
import re
import uuid

import httpx
import pytest

from tests.support.captured_project import captured_database, rebuild_view
from tests.support.connect_workers import running
from views.generations.lock import following
from views.generations.place import LockPlace

pytestmark = [pytest.mark.services, pytest.mark.spark]

TABLE = "CREATE TABLE orders (id int PRIMARY KEY); INSERT INTO orders VALUES (1)"


@pytest.mark.matrix
def test_readers_move_as_was_confirmed_alone(spark, stack, tmp_path, capsys, monkeypatch):
    with captured_database(stack, tmp_path / "project", TABLE) as (project, _):
        project.view("copied.sql", "-- key: id\nSELECT id FROM orders")
        assert rebuild_view(capsys, monkeypatch, project, "copied").code == 0
        project.execute("INSERT INTO orders VALUES (2)")
        project.capture()
        assert rebuild_view(capsys, monkeypatch, project, "copied", "--stage").code == 0
        group = f"g{uuid.uuid4().hex[:8]}"
        words = ("--project", str(project.root))
        with (
            running(stack.endpoints(), group, *words) as (url, _, _),
            httpx.Client(base_url=f"{url}/page/views/copied", timeout=120) as client,
        ):

            def form(action):
                text = client.get(f"/{action}").text
                fields = re.findall(r'type="hidden" name="(\w+)" value="(\w*)"', text)
                return {**dict(fields), "sure": "yes"}

            def act(action, fields):
                return client.post(f"/{action}", data=fields, follow_redirects=True).text

            publish = form("publish")
            assert (publish["serving"], publish["to"]) == ("1", "2")
            with following(LockPlace(project.root), ["copied"]):
                said = html.unescape(act("publish", publish))
                assert 'nothing was done: view "copied" is followed' in said
                assert f"process {os.getpid()}" in said
            assert [row["id"] for row in project.delta("copied")] == [1]
            assert "readers of copied see generation 2" in act("publish", publish)
            assert [row["id"] for row in project.delta("copied")] == [1, 2]
            # The form is from before: what it says is not so any more.
            assert "nothing was done" in act("publish", publish)
            back = form("rollback")
            assert "readers of copied see generation 1" in act("rollback", back)
            assert [row["id"] for row in project.delta("copied")] == [1]
            assert "nothing was done" in act("rollback", back)
        assert [row["id"] for row in project.delta("copied")] == [1]
