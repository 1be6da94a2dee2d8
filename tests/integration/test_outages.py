"""Servers and networks fail for longer than every time limit, and capture recovers by itself.

One capture process lives through it: it is halted at a named point (SIGSTOP), a server or the
network to it fails, capture goes on and notices, the failure ends. Then one judge for all: the
fold of the log equals the table, no position went back, the process is the same, the slot is there.
"""

import itertools
import re
import signal
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from psycopg2.extensions import make_dsn, parse_dsn

from changelog.runtime.failpoints import Failpoint
from changelog.stack.base.ports import pick
from tests.support.capture_command import CrashingCapture
from tests.support.matrix import pairs
from tests.support.proxy import Proxy
from tests.support.wait import wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow, pytest.mark.matrix]

ROWS = 2000
DEADLINE_S = 90
HASTY = """
[kafka.options]
"socket.timeout.ms" = "3000"
"socket.connection.setup.timeout.ms" = "2000"
"reconnect.backoff.max.ms" = "500"
"""
TRYING, WAITING = "trying again", "waiting for the brokers"
_SECONDS = 6  # longer than the limits in HASTY, and most of `--hasty`


class Line:
    """A capture, its servers, and proxies on the way to them."""

    def __init__(self, *, stack, detour, dsn, kafka, registry, prefix, folder, proxies):
        postgres = parse_dsn(dsn)
        ports = {"postgres": int(postgres["port"]), "registry": int(registry.url.split(":")[2][:5])}
        self.proxies = {"kafka": proxies.enter_context(Proxy(detour.proxy, detour.listener))}
        for name, port in ports.items():
            taken = [each.port for each in self.proxies.values()]
            self.proxies[name] = proxies.enter_context(Proxy(pick(taken), port))
        self.stack = stack
        self.capture = CrashingCapture(
            dsn=make_dsn(
                dsn,
                port=self.proxies["postgres"].port,
                connect_timeout=2,
                tcp_user_timeout=3000,
                options="-c wal_sender_timeout=5s",
            ),
            kafka=kafka,
            registry=registry,
            prefix=prefix,
            folder=folder,
            brokers=f"127.0.0.1:{detour.proxy}",
            url=re.sub(r":\d+/", f":{self.proxies['registry'].port}/", registry.url),
        )
        self.capture.dsn = dsn  # the test itself takes no detour
        self.settings = folder / "changelog.toml"
        self.settings.write_text(self.settings.read_text() + HASTY)
        self.capture.make_notes(ROWS)
        self._numbers = itertools.count(1)

    def begin(self, **named):
        self.capture.begin(hasty=True, halts=True, **named)
        assert self.capture.running is not None
        self.process = psutil.Process(self.capture.running.pid)

    def halt_at(self, point):
        (self.capture.folder / "halt").write_text(Failpoint(point))

    def wait_halted(self, point):
        wait_until(
            lambda: self.process.status() == psutil.STATUS_STOPPED,
            DEADLINE_S,
            f"capture reaches {point}",
        )

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def change(self):
        number = next(self._numbers)
        self.capture.sql(
            f"UPDATE notes SET text = 'change {number} of ' || id WHERE id % 3 = {number % 3}",
            f"DELETE FROM notes WHERE id = {number}",
            f"INSERT INTO notes VALUES ({1_000_000 + number}, 'new')",
            f"UPDATE notes SET id = id + 100000 * {number} WHERE id = {ROWS - number}",
        )

    def add_column(self):
        number = next(self._numbers)
        self.capture.sql(
            f"ALTER TABLE notes ADD extra{number} integer",
            f"UPDATE notes SET extra{number} = 1 WHERE id % 50 = 0",
        )

    def wait_noticed(self, start=0, *, times=2):
        """Wait until capture has waited for longer than any limit; tell where it is if it does not.

        It waits inside a flush, or from life to life: whether records were still in its queue is
        a matter of chance. A wait inside a flush is told each second.
        """
        try:
            wait_until(
                lambda: (
                    self.capture.said()[start:].count(TRYING) >= times
                    or self.capture.said()[start:].count(WAITING) >= _SECONDS
                ),
                DEADLINE_S,
                "it notices",
            )
        except AssertionError as error:
            self.process.send_signal(signal.SIGUSR1)
            wait_until(lambda: "Current thread" in self.capture.said(), 5, "where it is")
            raise AssertionError(self.capture.said()) from error

    def judge(self):
        self.capture.settle()
        self.capture.check()
        assert self.capture.running is not None
        assert self.capture.running.poll() is None
        ((status,),) = self.capture.query(
            f"SELECT wal_status FROM pg_replication_slots WHERE slot_name = '{self.capture.prefix}'"
        )
        assert status == "reserved"
        assert self.capture.frontier().epoch == 1

    def close(self):
        for name in ("postgres", "kafka", "registry"):
            server = self.stack.server(name)
            if server.running:
                server.resume()
            else:
                server.start()
        if self.capture.running is not None and self.capture.running.poll() is None:
            self.go_on()
        self.capture.kill()


@dataclass(frozen=True)
class Outage:
    """A failure: of which server, how it begins, and whether capture has to notice it."""

    server: str
    how: str
    is_noticed: bool = True

    def __str__(self):
        return f"{self.server} {self.how}"

    def begin(self, line):
        proxy, server = line.proxies[self.server], line.stack.server(self.server)
        {
            "killed": server.kill,
            "paused": server.pause,
            "refused": proxy.refuse,
            "held": proxy.hold,
            "forgotten": proxy.forget,
            "reset": proxy.reset,
            "trickling": proxy.trickle,
        }[self.how]()

    def end(self, line):
        server = line.stack.server(self.server)
        if self.how == "killed":
            server.start()
        elif self.how == "paused":
            server.resume()
        else:
            line.proxies[self.server].heal()

    @property
    def is_reachable(self):
        """Whether the test can write to PostgreSQL meanwhile."""
        return self.server != "postgres" or self.how not in {"killed", "paused"}


@pytest.fixture
def line(stack, detour, dsn, kafka, registry, prefix, tmp_path):
    with ExitStack() as proxies:
        made = Line(
            stack=stack,
            detour=detour,
            dsn=dsn,
            kafka=kafka,
            registry=registry,
            prefix=prefix,
            folder=tmp_path,
            proxies=proxies,
        )
        yield made
        made.close()


def survive(line, outage, point, *, halted=False):
    """Let it fail at a point of the stream, or where capture is halted; and judge."""
    if not halted:
        line.halt_at(point)
        line.change()
    line.wait_halted(point)
    said = len(line.capture.said())
    outage.begin(line)
    try:
        line.go_on()
        if outage.is_reachable:
            line.add_column() if outage.server == "registry" else line.change()
        if outage.is_noticed:
            # After one attempt such a connection is replaced by one that works.
            line.wait_noticed(said, times=1 if outage.how in {"forgotten", "reset"} else 2)
    finally:
        outage.end(line)
    line.judge()


SNAPSHOT = ("slot made", "fence taken", "chunk copied", "progress written", "table whole")
STREAM = ("transaction produced", "frontier written", "acknowledged")
OUTAGES = (
    Outage("kafka", "killed"),
    Outage("kafka", "paused"),
    Outage("kafka", "refused"),
    Outage("kafka", "held"),
    Outage("kafka", "reset", is_noticed=False),
    Outage("kafka", "trickling", is_noticed=False),
    Outage("postgres", "killed"),
    Outage("postgres", "refused"),
    Outage("postgres", "held"),
    Outage("postgres", "forgotten"),
    Outage("postgres", "reset"),
    Outage("postgres", "trickling", is_noticed=False),
    Outage("registry", "killed"),
    Outage("registry", "refused"),
    Outage("registry", "held"),
)
FEW = (
    (Outage("postgres", "forgotten"), "transaction produced"),
    (Outage("kafka", "killed"), "transaction produced"),
    (Outage("kafka", "held"), "frontier written"),
    (Outage("postgres", "killed"), "acknowledged"),
    (Outage("registry", "refused"), "acknowledged"),
)


def test_one_capture_lives_through_one_outage_after_another(line):
    line.halt_at("chunk copied")
    line.begin(small=True)
    survive(line, Outage("kafka", "reset", is_noticed=False), "chunk copied", halted=True)
    for outage, point in FEW:
        survive(line, outage, point)
    line.capture.running.send_signal(signal.SIGTERM)
    assert line.capture.running.wait(DEADLINE_S) == 0


@pytest.mark.parametrize(("outage", "point"), pairs(OUTAGES, STREAM), ids=str)
def test_an_outage_at_a_point_of_the_stream_loses_nothing(line, outage, point):
    line.begin()
    line.capture.wait_for_frontier()
    survive(line, outage, point)


# Of these, what the copying of a table asks nothing of would not be noticed.
IN_SNAPSHOT = tuple(
    Outage(each.server, each.how, is_noticed=False) for each in OUTAGES if each.server != "registry"
)


@pytest.mark.parametrize(("outage", "point"), pairs(IN_SNAPSHOT, SNAPSHOT), ids=str)
def test_an_outage_at_a_point_of_the_snapshot_loses_nothing(line, outage, point):
    line.halt_at(point)
    line.begin(small=True)
    survive(line, outage, point, halted=True)


@pytest.mark.matrix
def test_twin_a_client_that_waits_for_ever_never_notices_a_black_hole(line):
    line.begin(defect="forget_silence")
    line.capture.wait_for_frontier()
    line.halt_at("transaction produced")
    line.change()
    line.wait_halted("transaction produced")
    said = len(line.capture.said())
    line.proxies["postgres"].forget()
    line.go_on()
    with pytest.raises(AssertionError, match="not within"):
        wait_until(lambda: TRYING in line.capture.said()[said:], 25, "it notices")


@pytest.mark.matrix
def test_twin_an_early_acknowledgement_does_not_survive_an_outage_of_the_broker(line):
    line.begin(defect="acknowledge_early")
    line.capture.wait_for_frontier()
    line.halt_at("transaction produced")
    line.change()
    line.wait_halted("transaction produced")
    line.proxies["postgres"].reset()
    line.proxies["kafka"].refuse()
    line.go_on()
    try:
        line.wait_noticed(times=1)
    finally:
        line.proxies["kafka"].heal()
    with pytest.raises(AssertionError):
        line.judge()


WIDE_ROWS = 200_000
IN_THE_ROWS = "record produced"


def peak_mb(line, settings=""):
    """Return the greatest memory of a capture while the broker is away and rows come in."""
    line.settings.write_text(line.settings.read_text() + settings)
    line.begin()
    line.capture.wait_for_frontier()
    line.halt_at(IN_THE_ROWS)  # before them, capture would wait for the broker with a frontier
    line.capture.sql(
        "INSERT INTO notes SELECT n, repeat(md5(n::text), 32) "
        f"FROM generate_series(2000000, {2_000_000 + WIDE_ROWS - 1}) n"
    )
    line.wait_halted(IN_THE_ROWS)
    outage = Outage("kafka", "paused")
    outage.begin(line)
    line.go_on()
    try:
        line.wait_noticed()
        status = f"/proc/{line.process.pid}/status"
        with Path(status).open(encoding="ascii") as file:
            found = re.search(r"VmHWM:\s+(\d+) kB", file.read())
    finally:
        outage.end(line)
    assert found is not None
    return int(found[1]) / 1024


MOST_MB = 280


@pytest.mark.matrix
def test_memory_is_bounded_while_the_broker_is_away_and_rows_come_in(line):
    assert peak_mb(line) < MOST_MB
    line.judge()


@pytest.mark.matrix
def test_twin_a_queue_without_a_limit_takes_all_memory(line):
    free = '"queue.buffering.max.kbytes" = "2000000"\n"queue.buffering.max.messages" = "10000000"\n'
    assert peak_mb(line, f"[capture.producer]\n{free}") > MOST_MB
