"""The page of `changelog serve` on the real servers: what it says, quickly, whatever is away."""

from __future__ import annotations

import re
import socket
import time
import uuid
from contextlib import closing, contextmanager

import httpx
import pytest

from tests.support.captured_project import captured_database, write_settings
from tests.support.connect_workers import running
from tests.support.wait import wait_until
from views.generations.history import REFUTED, GenerationHistory, HistoryRow

DEADLINE_S = 120
TOKEN = "token-canary-0123456789"
STATEMENTS = "CREATE TABLE orders (id int PRIMARY KEY); INSERT INTO orders VALUES (1)"


@contextmanager
def served(stack, root, *words):
    """Serve a project's page; gives its address."""
    group = f"g{uuid.uuid4().hex[:8]}"
    with running(stack.endpoints(), group, "--project", str(root), *words) as (url, _, said):
        yield f"{url}/page"
    assert TOKEN not in "".join(said)


def cell(text: str, name: str) -> str:
    found = re.search(rf'data-live="{re.escape(name)}"[^>]*>([^<]*)<', text)
    assert found, f"{name} is not on the page"
    return found[1]


def shown(url: str, name: str, wanted: str) -> str:
    """Return the page once a cell says what is wanted; if it never does, tell what it said."""
    texts, said = [""], set()

    def looks():
        texts.append(httpx.get(url, timeout=30).text)
        said.add(cell(texts[-1], name))
        return wanted in cell(texts[-1], name)

    try:
        wait_until(looks, DEADLINE_S, f"{name} says {wanted!r}")
    except AssertionError as error:
        raise AssertionError(f"{error}; it said {sorted(said)}") from error
    return texts[-1]


def test_the_page_says_how_the_line_stands(stack, tmp_path):
    with captured_database(stack, tmp_path / "project", STATEMENTS) as (project, slot):
        project.view("paged.sql", "-- key: id\n-- sinks: delta, cache\nSELECT id FROM orders")
        project.view("broken.sql", "SELECT id FROM orders")
        row = HistoryRow(view="paged", generation=1, state=REFUTED, note="a row differs")
        with served(stack, project.root) as url:
            text = shown(url, "source.state", "problem")
            assert cell(text, "source.said").endswith("capture does not run")
            assert slot in text
            text = shown(url, "log.said", "1 can be read exactly")
            assert "public.orders" in text
            text = shown(url, "view.paged.said", "was never built")
            assert cell(text, "view.paged.mend") == "rebuild-view paged"
            assert cell(text, "view.broken.state") == "problem"
            GenerationHistory(str(project.warehouse)).append([row])
            text = shown(url, "view.paged.said", "1 was refuted: a row differs")
            one = httpx.get(f"{url}/views/paged", timeout=30).text
            assert "1 was refuted: a row differs" in one
            told = httpx.get(f"{url}/views/paged", params={"key": "1"}, timeout=120).text
            assert "partition" in told[told.index('id="explain"') :]
            with httpx.stream("GET", f"{url}/live", timeout=30) as stream:
                events = stream.iter_lines()
                assert any("1 was refuted" in line for line in events)


@pytest.mark.matrix
def test_what_is_away_is_unknown_and_holds_up_nothing(stack, tmp_path):
    """The source refuses, the cache takes requests and never answers one."""
    endpoints = stack.endpoints()
    with closing(socket.create_server(("127.0.0.1", 0))) as mute, closing(socket.socket()) as none:
        none.bind(("127.0.0.1", 0))  # and does not listen
        dsn = f"host=127.0.0.1 port={none.getsockname()[1]} dbname=x password={TOKEN}"
        root = tmp_path / "project"
        write_settings(root, endpoints, dsn, f"r{uuid.uuid4().hex[:8]}")
        settings = root / "changelog.toml"
        away = f"redis://:{TOKEN}@127.0.0.1:{mute.getsockname()[1]}/0"
        text = re.sub("sinks.cache.url = .*", f'sinks.cache.url = "{away}"', settings.read_text())
        settings.write_text(text, encoding="utf-8")
        (root / "views").mkdir()
        (root / "views" / "v.sql").write_text("-- key: id\n-- sinks: cache\nSELECT id FROM orders")
        with served(stack, root) as url:
            for _ in range(3):
                begun = time.monotonic()
                answer = httpx.get(url, timeout=30)
                assert answer.status_code == 200
                assert time.monotonic() - begun < 15
                assert cell(answer.text, "view.v.state") == "unknown"
            text = shown(url, "source.said", "connect")
            assert cell(text, "source.state") == "unknown"
            # The log tells of itself without the source.
            assert cell(text, "capture.frontier") == "none yet"
            assert cell(text, "capture.slot") == "unknown"
            text = shown(url, "view.v.said", "cache: no answer for")
            assert cell(text, "worst") == "unknown"
            assert TOKEN not in text


@pytest.mark.matrix
def test_brokers_that_are_away_are_told_and_hold_up_nothing(stack, tmp_path):
    with (
        captured_database(stack, tmp_path / "project", STATEMENTS) as (project, slot),
        closing(socket.socket()) as none,
    ):
        none.bind(("127.0.0.1", 0))  # and does not listen
        settings = project.root / "changelog.toml"
        away = f'kafka.brokers = "127.0.0.1:{none.getsockname()[1]}"'
        text = re.sub("kafka.brokers = .*", away, settings.read_text())
        settings.write_text(text, encoding="utf-8")
        project.view("paged.sql", "-- key: id\n-- sinks: delta\nSELECT id FROM orders")
        with served(stack, project.root) as url:
            assert httpx.get(url, timeout=30).status_code == 200
            text = shown(url, "view.paged.said", "was never built")
            text = shown(url, "log.said", "no Kafka broker answers at")
            assert cell(text, "log.state") == "unknown"
            # The source tells of its slot without the log.
            text = shown(url, "capture.slot", "idle, WAL reserved")
            assert cell(text, "source.said") == "no process reads the slot: capture does not run"
            assert slot in text
            assert cell(text, "capture.retained") != "unknown"
            for name in ("lag", "behind", "frontier"):
                assert cell(text, f"capture.{name}") == "unknown"


@pytest.mark.matrix
def test_the_token_of_the_worker_is_the_page_s_too(stack, tmp_path):
    token = tmp_path / "token"
    token.write_text(TOKEN)
    with served(stack, tmp_path, "--token-file", str(token)) as url:
        for path in ("", "/views/paged", "/live"):
            assert httpx.get(url + path, timeout=30).status_code in {303, 401}
        assert httpx.get(f"{url}/assets/page.css", timeout=30).status_code == 200
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        with httpx.Client(headers=bearer, timeout=30) as client:
            # A folder without a project is no error of the page's, and has no such view.
            assert client.get(url).status_code == 200
            assert client.get(f"{url}/views/paged").status_code == 404
