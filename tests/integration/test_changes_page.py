"""docs/page.md: its servers, what curl sees of a view's changes, and its script in a browser."""

from __future__ import annotations

import json
import re
import shlex
import ssl
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests.support.browser import chromium
from tests.support.certificates import LOOPBACK, Authority
from tests.support.page_lines import block_of, commands_of, plain, reader_of
from tests.support.topic_view import TopicView
from tests.support.wait import wait_until

pytestmark = pytest.mark.matrix
PAGE = Path(__file__).parents[2] / "docs" / "page.md"
DEADLINE_S = 120
TOKEN = "token-canary-0123456789"
SHOP_TOKEN = "shop-canary-0123456789"


@pytest.fixture
def view(stack, tmp_path):
    made = TopicView.alone(tmp_path / "shop", stack.endpoints())
    made.build(1, 0x10, {1: "first", 7: "seventh"})
    made.publish(1)
    return made


@contextmanager
def served(endpoints, folder, group, command, **environment):
    """Run a server of the page in a folder that has the project; gives where it listens."""
    shell = reader_of(folder, endpoints, "dbname=none", **environment)
    # A group and a port of its own: brokers and machine are shared.
    with shell.following(f"{command} --group {group} --port 0") as said:
        found = wait_until(lambda: re.search(r"serving on (\S+)", said()), DEADLINE_S, "it serves")
        assert found is not None
        yield found[1], shell


def test_the_page_is_served_here_and_to_others(endpoints, view, prefix, tmp_path):
    here, elsewhere = (plain(each) for each in commands_of(PAGE) if " serve " in each)
    authority = Authority(tmp_path, "authority")
    pair = authority.sign("server", LOOPBACK)
    pair.certificate.rename(tmp_path / "chain.pem")
    pair.key.rename(tmp_path / "key.pem")
    (tmp_path / "token").write_text(TOKEN)
    with served(endpoints, tmp_path, prefix, here) as (address, _):
        assert "names" in httpx.get(f"{address}/page", timeout=60).text
    with served(endpoints, tmp_path, prefix, elsewhere) as (address, _):
        assert address.startswith("https://")
        place = f"https://127.0.0.1:{address.rpartition(':')[2]}/views/names/changes?since=FF/0"
        trusted = ssl.create_default_context(cafile=authority.certificate)
        assert httpx.get(place, verify=trusted, timeout=60).status_code == 401
        known = {"Authorization": f"Bearer {TOKEN}"}
        assert httpx.get(place, verify=trusted, headers=known, timeout=60).status_code == 409


def test_curl_sees_changes_in_the_form_of_the_page(endpoints, view, prefix, tmp_path):
    command = next(plain(each) for each in commands_of(PAGE) if " serve " in each)
    asked = block_of(PAGE, "sh", "curl -N")
    given = {"CHANGELOG_SERVE_TOKEN": TOKEN, "TOKEN": TOKEN}
    with served(endpoints, tmp_path, prefix, command, **given) as (address, shell):
        assert "http://127.0.0.1:8083/views/totals/" in asked.text
        curl = asked.text.replace("http://127.0.0.1:8083/views/totals/", f"{address}/views/names/")
        # By itself it follows for ever, and a signal is an error to it.
        # Where no terminal is, it tells beside that how much it has got.
        ended = shlex.quote(f'trap "kill $!; exit 0" TERM; {curl.strip()} 2> /dev/null & wait')
        seen = shell.follow(f"bash -c {ended}", lambda said: "event: frontier\nid: " in said)
    shown = "\n".join(asked.prints)
    assert [*form_of(seen)][:2] == [*form_of(shown)]


def form_of(stream):
    """Yield the form of each event: its name, its id with letters and digits put out, its data."""
    for event in re.split(r"\n\n+", stream.strip()):
        fields = dict(line.partition(": ")[::2] for line in event.splitlines())
        if "data" in fields:
            said = json.loads(fields["data"])
            each = [sorted(one) for one in said.get("changes", ())][:1]
            mark = re.sub(r"[0-9A-Fa-f]+", "0", fields.get("id", ""))
            yield fields.get("event"), mark, sorted(said), each


def test_the_script_of_the_page_follows_a_view_in_a_browser(endpoints, view, prefix, tmp_path):
    command = next(plain(each) for each in commands_of(PAGE) if " serve " in each)
    script = block_of(PAGE, "js", "const stream").text
    assert "/views/totals/" in script
    script = script.replace("/views/totals/", "/views/names/")
    reader = """
        globalThis.rows = new Map();
        globalThis.apply = ({key, row}) => row ? rows.set(key.id, row.name) : rows.delete(key.id);
        globalThis.show = (lsn) => { globalThis.lsn = lsn; };
    """
    with (
        served(endpoints, tmp_path, prefix, command, CHANGELOG_SERVE_TOKEN=TOKEN) as (address, _),
        chromium() as browser,
    ):
        page = browser.new_page()
        page.goto(f"{address}/page")
        page.fill("input[type=password]", TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector("text=names")
        page.evaluate(reader)
        session = page.context.new_cdp_session(page)
        session.send("Runtime.evaluate", {"expression": script})

        def seen():
            return page.evaluate("[globalThis.lsn ?? '', [...rows].sort()]")

        wait_until(lambda: seen()[0] == "0/10", DEADLINE_S, "the first frontier is shown")
        assert seen()[1] == [[1, "first"], [7, "seventh"]]
        view.forward(1, 0x20, {1: "second", 7: None})
        wait_until(lambda: seen()[0] == "0/20", DEADLINE_S, "the next frontier is shown")
        assert seen()[1] == [[1, "second"]]


def test_a_page_of_another_site_follows_a_view_by_its_token(endpoints, view, prefix, tmp_path):
    command = next(plain(each) for each in commands_of(PAGE) if " serve " in each)
    (tmp_path / "site").mkdir()
    (tmp_path / "site/index.html").write_text("<!doctype html><title>shop</title>")
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path / "site")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as site, chromium() as browser:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        origin = f"http://127.0.0.1:{site.server_port}"
        tokens = {"shop": {"token": SHOP_TOKEN, "views": ["names"], "origins": [origin]}}
        given = {"CHANGELOG_SERVE_TOKEN": TOKEN, "CHANGELOG_HTTP_TOKENS": json.dumps(tokens)}
        with served(endpoints, tmp_path, prefix, command, **given) as (address, _):
            page = browser.new_page()
            page.goto(origin)
            for token, state in ((SHOP_TOKEN, "open"), (TOKEN, "closed")):
                place = f"{address}/views/names/changes?since=start&token={token}"
                assert page.evaluate(FIRST_EVENT, place) == state
        site.shutdown()


FIRST_EVENT = """place => new Promise(done => {
    const stream = new EventSource(place);
    stream.addEventListener("frontier", () => { stream.close(); done("open"); });
    stream.onerror = () => stream.readyState === EventSource.CLOSED && done("closed");
})"""
"""Says whether a stream opens and has a frontier, or is refused."""
