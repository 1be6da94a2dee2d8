"""The page in a headless Chromium: light, dark, on a phone, by keyboard, for everybody, and alone.

`CHANGELOG_PICTURES=docs/pictures` writes what it looks like there.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from changelog.contract.base.lsn import Lsn
from tests.support.browser import axe, chromium
from tests.support.captured_project import captured_database
from tests.support.connect_workers import running
from tests.support.topic_view import DECLARED, TopicView
from tests.support.wait import wait_until
from views.generations.history import (
    PUBLISHED,
    REFUTED,
    SEALED,
    STAGED,
    GenerationHistory,
    HistoryRow,
)

pytestmark = pytest.mark.matrix
DEADLINE_S = 120
SHOWN = {
    "page-line-light-desk",
    "page-line-dark-phone",
    "page-view-dark-desk",
    "page-confirm-light-phone",
}
"""Pictures in docs/page.md."""
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
STATEMENTS = """
CREATE TABLE names (id bigint PRIMARY KEY, name text);
INSERT INTO names SELECT n, 'name ' || n FROM generate_series(1, 500) n;
CREATE TABLE cities (name text PRIMARY KEY, country text);
INSERT INTO cities SELECT 'city ' || n, 'country ' || n % 7 FROM generate_series(1, 40) n;
"""
VIEWS = {
    "names": DECLARED,
    "cities_by_country": "-- key: country\nSELECT country, count(*) AS cities FROM cities "
    "GROUP BY country",
    "new_cities": "-- key: name\nSELECT name FROM cities",
}
SERVES = 20


def history(lsn: str):
    """Make up a course of rebuilds: one view serves and has another staged, one was refuted."""
    now = datetime.now(UTC)
    certificate = {"topic": {"verified": True, "rows_expected": 500, "rows_served": 500,
                             "mismatches": 0, "notes": []}}  # fmt: skip
    for number in range(1, SERVES + 1):
        made = HistoryRow(
            view="names", generation=number, state=SEALED,
            at=now - timedelta(days=SERVES + 1 - number), lsn=lsn, ts=now, rows=300 + number * 10,
            records_read=500 + number * 9, seconds={"total": 20 + number * 1.5}, verified=True,
            mismatches=0, certificate=certificate, sinks=("topic",),
        )  # fmt: skip
        yield made
        yield made.again(state=PUBLISHED, at=made.at + timedelta(seconds=40))
        if number == SERVES:
            yield made.again(generation=number + 1, state=STAGED)
    yield HistoryRow(view="cities_by_country", generation=3, state=REFUTED, note="2 rows differ")


@pytest.fixture(scope="module")
def address(stack, tmp_path_factory):
    root = tmp_path_factory.mktemp("browser") / "shop"
    with captured_database(stack, root, STATEMENTS) as (project, _):
        for name, text in VIEWS.items():
            project.view(f"{name}.sql", text)
        lsn = project.query("SELECT pg_current_wal_lsn()")[0][0]
        GenerationHistory(str(project.warehouse)).append(history(lsn))
        view = TopicView(root)
        for number in (SERVES - 1, SERVES):
            rows = {n: f"name {n}" for n in range(1, 501)}
            view.build(number, Lsn.parse(lsn), rows)
            view.publish(number)
        settings = root / "changelog.toml"
        schedule = '\n[schedule.nightly]\ncron = "0 3 * * *"\nrun = "--all"\n'
        settings.write_text(settings.read_text("utf-8") + schedule, encoding="utf-8")
        words = ("--project", str(root))
        with running(stack.endpoints(), f"g{uuid.uuid4().hex[:8]}", *words) as (url, _, _):
            yield url


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture
def page(browser, address):
    """Open pages; what a browser complains of, and what it asks of others, is an error."""
    contexts, wrong = [], []

    def asked(request):
        if not request.url.startswith(address):
            wrong.append(f"asks {request.url}")

    def page(path="/page", **given):
        contexts.append(browser.new_context(**{"viewport": DESK, **given}))
        made = contexts[-1].new_page()
        made.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        made.on("pageerror", lambda error: wrong.append(str(error)))
        made.on("request", asked)
        made.goto(address + path)
        return made

    yield page
    for each in contexts:
        each.close()
    assert wrong == []


def told(page, name: str) -> str:
    return page.text_content(f'[data-live="{name}"]') or ""


def settled(page):
    """Wait until the numbers have come that servers tell."""
    wait_until(lambda: "/" in told(page, "capture.frontier"), DEADLINE_S, "capture is told of")
    return page


def taken(page, name: str) -> None:
    """Keep what a page looks like, if it is one of those that the documents show."""
    folder = os.environ.get("CHANGELOG_PICTURES")
    if folder and name in SHOWN:
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=name.endswith("phone"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_nothing_keeps_people_out(page, scheme, viewport):
    for name, path in {
        "line": "/page",
        "view": "/page/views/names",
        "confirm": "/page/views/names/rollback",
    }.items():
        made = page(path, color_scheme=scheme, viewport=viewport)
        if name == "line":
            settled(made)
        device = "phone" if viewport is PHONE else "desk"
        taken(made, f"page-{name}-{scheme}-{device}")
        # axe is no part of the page, whose policy refuses scripts of others.
        session = made.context.new_cdp_session(made)
        session.send("Runtime.evaluate", {"expression": axe()})
        found = session.send(
            "Runtime.evaluate",
            {
                "expression": "axe.run().then((found) => JSON.stringify(found.violations))",
                "awaitPromise": True,
            },
        )["result"]["value"]
        bars = [(each["id"], each["nodes"][0]["html"]) for each in json.loads(found)]
        assert bars == [], f"{name}: {bars}"
        width = made.evaluate("document.documentElement.scrollWidth")
        assert width <= viewport["width"], f"{name} is wider than the screen"


def test_numbers_come_by_themselves(page):
    made = settled(page())
    is_live = "document.body.dataset.live === 'yes'"
    wait_until(lambda: made.evaluate(is_live), DEADLINE_S, "the numbers are live")
    before = told(made, "at")
    wait_until(lambda: told(made, "at") != before, DEADLINE_S, "another moment is told")
    assert told(made, "view.cities_by_country.state") == "problem"
    assert told(made, "view.new_cities.mend") == "rebuild-view new_cities"


def test_without_scripts_all_is_there(page):
    made = page(java_script_enabled=False)
    found = {}

    def is_told():
        found["text"] = made.content()
        made.reload()
        return re.search(r'data-live="capture.frontier">[0-9A-F]+/', found["text"])

    wait_until(is_told, DEADLINE_S, "the page tells of capture")
    assert 'http-equiv="refresh"' in found["text"]
    made.click("a:text-is('names')")
    assert made.text_content("h2#generations") == "Generations"
    made.click("text=Roll back…")
    assert "Roll back names?" in (made.text_content("h1") or "")


def test_the_keyboard_is_enough(page):
    made = page("/page/views/names/rollback")
    wanted, reached = {"Skip to content", "change log", "names", "Roll back"}, set()
    for _ in range(12):
        made.keyboard.press("Tab")
        reached.add(made.evaluate("document.activeElement.textContent.trim()"))
        outline = made.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none" or made.evaluate("document.activeElement === document.body")
    assert wanted <= reached
