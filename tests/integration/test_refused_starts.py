"""A start that is refused leaves source, broker and registry as they were, whatever refused it."""

import http.server
import json
import threading
from contextlib import closing

import httpx
import psycopg2
import pytest
from psycopg2.extensions import make_dsn
from rich.console import Console

from changelog.capture.loop.run import CaptureRun
from changelog.capture.start.start_undo import StartUndo
from changelog.capture.state.report import CaptureReport
from changelog.config import load_project
from changelog.contract.base.errors import ChangelogError
from changelog.contract.log.topic import frontier_topic
from changelog.kafka.cluster import describe
from tests.support.capture_command import CaptureCommand, capture_with
from tests.support.matrix import first

pytestmark = [pytest.mark.services, pytest.mark.slow]

FULL = ("--replica-identity", "full", "--yes")


capture = capture_with(CaptureCommand, notes=20)


class RefusingRegistry:
    """Passes on what reads, and refuses with a status what writes."""

    def __init__(self, url, status):
        class Passing(http.server.BaseHTTPRequestHandler):
            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                writes = self.command in {"POST", "PUT"} and "/compatibility/" not in self.path
                if writes:
                    self.say(status, b'{"error_code": 42205, "message": "it takes nothing"}')
                    return
                asked = httpx.request(self.command, url + self.path, content=body or None)
                self.say(asked.status_code, asked.content)

            do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 - names of the library

            def say(self, code, body):
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Passing)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()


def everything(capture):
    """What a start may make, or alter, at each server."""
    topics = [frontier_topic(capture.prefix)]
    topics += [f"{capture.prefix}.{name}" for name in ("notes", "bare", "_lines")]
    subjects = httpx.get(f"{capture.registry_url}/subjects").json()
    return (
        capture.query(
            "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
        ),
        capture.query(
            "SELECT pubname, tablename FROM pg_publication p LEFT JOIN "
            "pg_publication_tables USING (pubname) ORDER BY 1, 2"
        ),
        capture.query(
            "SELECT relname, relreplident::text FROM pg_class "
            "WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' ORDER BY 1"
        ),
        capture.query("SELECT evtname FROM pg_event_trigger"),
        sorted(describe(capture.kafka, topics)),
        sorted(each for each in subjects if each.startswith(f"{capture.prefix}.")),
    )


def hasty(dsn):
    """Return an address where a slot waits no longer for a transaction that is open."""
    return make_dsn(dsn, options="-c lock_timeout=700")


def writing(capture):
    """Hold a transaction open that a new slot waits for, and no table."""
    connection = psycopg2.connect(capture.dsn)
    connection.cursor().execute("SELECT txid_current()")
    return closing(connection)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("status", "code", "says"),
    first(1, [(403, 2, "does not let us in"), (422, 1, "it takes nothing")]),
)
def test_a_registry_that_takes_no_schema_leaves_nothing_behind(capture, status, code, says):
    before = everything(capture)
    with RefusingRegistry(capture.registry_url, status) as refusing:
        found, _, said = capture.run("--until", "now", "--schema-registry", refusing.url, "--ddl")
    assert (found, says in said) == (code, True), said
    assert "takes back what it has made" in said
    assert everything(capture) == before
    capture.catch_up()
    assert len(capture.rows("notes")) == 20


def test_a_slot_that_cannot_be_had_leaves_nothing_behind(capture):
    capture.sql("CREATE TABLE bare (n integer)")
    before = everything(capture)
    options = ("--postgres", hasty(capture.dsn), "--until", "now", "--allow-unkeyed", *FULL)
    with writing(capture):
        code, _, said = capture.run(*options)
        assert (code, "cannot create the slot" in said) == (1, True), said
        assert everything(capture) == before
        # A publication of before sends what it sent.
        capture.sql(
            f"CREATE PUBLICATION {capture.prefix} FOR TABLE ONLY notes "
            "WITH (publish_via_partition_root)"
        )
        before = everything(capture)
        code, _, said = capture.run(*options)
        assert (code, "cannot create the slot" in said) == (1, True), said
        assert everything(capture) == before
    capture.catch_up("--allow-unkeyed", *FULL)
    # What has a key needs no old row: it is left as it is.
    assert everything(capture)[2] == [("bare", "f"), ("notes", "d")]


def test_twin_that_takes_nothing_back_is_seen(capture, monkeypatch):
    monkeypatch.setattr(StartUndo, "take_back", lambda *_: None)
    before = everything(capture)
    overrides = {"postgres.dsn": hasty(capture.dsn)}
    run = CaptureRun(
        load_project(capture.folder, overrides=overrides),
        report=CaptureReport(),
        stop=lambda: False,
        console=Console(quiet=True),
    )
    with writing(capture), pytest.raises(ChangelogError, match="cannot create the slot"):
        run.run()
    assert everything(capture) != before


REASONS = {
    "a table without a key": ((), "CREATE TABLE bare (n integer)", "has no primary key"),
    "a missing table": (("--tables", "public.notes,public.nowhere"), "", "no such table"),
    "a row filter": (("--where", "notes=id >"), "", "syntax error"),
    "a topic's setting": (("-T", "no.such=1"), "", "no.such"),
    "a place": (("--until", "nonsense"), "", "nonsense"),
    "a slot of others": (("--no-create-slot",), "", "would have to be made"),
    "the broker": (("--broker", "127.0.0.1:9", "--no-wait"), "", "no Kafka broker answers"),
    "the registry": (("--schema-registry", "http://127.0.0.1:9", "--no-wait"), "", "no schema"),
}


@pytest.mark.parametrize("reason", first(2, [*REASONS]))
def test_what_is_looked_at_first_alters_nothing(capture, reason):
    options, statement, says = REASONS[reason]
    if statement:
        capture.sql(statement)
    capture.sql("ALTER TABLE notes REPLICA IDENTITY NOTHING")  # so that there is what to alter
    before = everything(capture)
    words = options if "--until" in options else ("--until", "now", *options)
    code, _, said = capture.run(*words, *FULL)
    assert (code in {1, 2}, says in said) == (True, True), said
    assert everything(capture) == before


def test_a_key_by_the_replica_identity_is_not_taken_away(capture):
    capture.sql(
        "CREATE TABLE bare (n integer NOT NULL, CONSTRAINT by_n UNIQUE (n))",
        "ALTER TABLE bare REPLICA IDENTITY USING INDEX by_n",
    )
    before = everything(capture)
    nested = ("--until", "now", "--envelope", "nested", "-u", *FULL)
    code, _, said = capture.run(*nested)
    assert (code, "--key-index public.bare=by_n" in said) == (2, True), said
    assert everything(capture) == before
    code, _, said = capture.run(*nested, "--key-index", "public.bare=by_n", "--check")
    assert code == 0, said


@pytest.mark.parametrize("to_file", [True, False], ids=["file", "output"])
def test_lines_that_cannot_begin_leave_nothing_behind(capture, to_file):
    before = everything(capture)
    target = ("--into", str(capture.folder / "changes.jsonl")) if to_file else ("--print",)
    options = ("--postgres", hasty(capture.dsn), "--until", "now", *target, *FULL)
    with writing(capture):
        code, _, said = capture.run(*options)
    assert (code, "cannot create the slot" in said) == (1, True), said
    assert everything(capture) == before
    code, out, said = capture.run("--until", "now", *target, *FULL)
    assert code == 0, said
    # A line has the row before: that is what the identity was asked for.
    assert everything(capture)[2] == [("notes", "f")]
    text = (capture.folder / "changes.jsonl").read_text() if to_file else out
    assert sum("after" in json.loads(line) for line in text.splitlines()) == 20
