"""A start of capture that meets servers which restart, or a slot that is still held."""

import time

import pytest
from psycopg2.extensions import make_dsn, parse_dsn

from changelog.stack.base.ports import pick
from changelog.stack.servers.postgres import PostgresServer
from tests.support.capture_command import CaptureCommand, capture_with
from tests.support.matrix import first
from tests.support.proxy import Proxy
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow]

ROWS = 20
ANSWERS = "another capture runs"
WAITS = "should it be dead"


capture = capture_with(CaptureCommand, notes=ROWS)


@pytest.mark.parametrize("name", first(1, ["postgres", "kafka", "registry"]))
def test_a_start_while_a_server_restarts_waits_for_it(capture, stack, name):
    server = stack.server(name)
    server.kill()
    try:
        capture.start("--until", "now")
        wait_until(lambda: "trying again" in capture.said(), 60, "it waits")
    finally:
        server.start()
    assert capture.running.wait(90) == 0, capture.said()
    assert len(capture.rows("notes")) == ROWS


@pytest.mark.matrix
def test_a_start_gives_up_after_the_time_that_it_was_given(capture):
    nobody = f"postgresql://postgres@127.0.0.1:{pick()}/app"
    begun = time.monotonic()
    code, _, said = capture.run("--postgres", nobody, "--wait", "3", "--until", "now")
    assert (code, said.count("trying again") >= 2) == (1, True), said
    assert said.splitlines()[-1].startswith("error: no PostgreSQL answers")
    assert time.monotonic() - begun >= 3


@pytest.mark.matrix
def test_what_a_server_refuses_is_told_at_once(capture):
    code, _, said = capture.run("--postgres", make_dsn(capture.dsn, dbname="nowhere"))
    assert (code, "trying again" in said) == (2, False), said


@pytest.fixture(params=[15, 18])
def held(request, kafka, registry, prefix, tmp_path):
    """A capture whose way to a PostgreSQL of its own is a proxy, and the proxy."""
    settings = {"fsync": "off", "wal_sender_timeout": "15s"}
    with PostgresServer(tmp_path / "pg", pick(), version=request.param, settings=settings) as made:
        port = int(parse_dsn(made.dsn)["port"])
        with Proxy(pick([port]), port) as proxy:
            capture = CaptureCommand(
                dsn=make_dsn(made.dsn, port=proxy.port),
                kafka=kafka,
                registry=registry,
                prefix=prefix,
                folder=tmp_path,
            )
            capture.dsn = made.dsn  # the test itself, and the second capture, take no detour
            capture.make_notes(ROWS)
            yield capture, proxy
            capture.kill()


@pytest.mark.matrix
def test_a_slot_that_a_dead_connection_holds_is_waited_for(held):
    capture, proxy = held
    capture.start()
    capture.wait_for_frontier()
    proxy.forget()  # the server is never told that its client has gone
    capture.kill()
    capture.running = None
    capture.sql("INSERT INTO notes VALUES (1000, 'while nobody read')")
    code, _, said = capture.run("--postgres", capture.dsn, "--until", "now")
    assert (code, WAITS in said) == (0, True), said
    assert len(capture.rows("notes")) == ROWS + 1


@pytest.mark.matrix
def test_a_slot_that_a_live_capture_holds_is_refused_promptly(held):
    capture, _ = held
    capture.start()
    capture.wait_for_frontier()
    begun = time.monotonic()
    code, _, said = capture.run("--postgres", capture.dsn)
    assert (code, ANSWERS in said) == (1, True), said
    assert time.monotonic() - begun < 15  # wal_sender_timeout, when a dead one would be ended
    code, _, said = capture.run("--postgres", capture.dsn, "--no-wait")
    assert (code, WAITS in said, ANSWERS in said) == (1, False, False), said
    capture.stop()
