"""`changelog capture` as a process, the way a user or a scheduler runs it."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from changelog.contract.base.errors import UnavailableLogError
from changelog.contract.log.topic import frontier_topic
from changelog.sink.frontier import FrontierLog
from tests.support.log_reader import LogReader
from tests.support.sql import execute
from tests.support.wait import wait_until

DEADLINE_S = 90.0

SETTINGS = """
[postgres]
dsn = "{dsn}"
[kafka]
brokers = "{brokers}"
[registry]
url = "{registry}"
[capture]
slot = "{prefix}"
topic_prefix = "{prefix}"
partitions = 3
frontier_interval_ms = 50
status_interval_ms = 500
"""


class CaptureCommand:
    """A project in a folder, its database and its log."""

    def __init__(self, *, dsn, kafka, registry, prefix, folder: Path, brokers=None, url=None):
        self.dsn, self.kafka, self.prefix, self.folder = dsn, kafka, prefix, folder
        self.reader, self.registry_url = LogReader(kafka, registry), registry.url
        self.running: subprocess.Popen[bytes] | None = None
        text = SETTINGS.format(
            dsn=dsn, brokers=brokers or kafka.brokers, registry=url or registry.url, prefix=prefix
        )
        (folder / "changelog.toml").write_text(text)

    def read_from(self, dsn, *lines):
        """Have capture read another server than the one that is written to."""
        path = self.folder / "changelog.toml"
        text = re.sub(r'dsn = ".*"', "\n".join([f'dsn = "{dsn}"', *lines]), path.read_text())
        path.write_text(text)

    def sql(self, *statements):
        execute(self.dsn, *statements)

    def make_notes(self, rows):
        """Make the table that most tests write to."""
        self.sql(
            "CREATE TABLE notes (id integer PRIMARY KEY, text text)",
            f"INSERT INTO notes SELECT n, 'row ' || n FROM generate_series(1, {rows}) n",
        )

    def query(self, statement):
        return execute(self.dsn, statement)

    def _command(self, *more):
        base = [sys.executable, "-m", "changelog", "capture", "--project", str(self.folder)]
        return [*base, *more]

    def run(self, *more):
        """Run to the end; returns exit code, standard output and standard error."""
        done = subprocess.run(
            self._command(*more), check=False, capture_output=True, text=True, timeout=DEADLINE_S
        )
        return done.returncode, done.stdout, done.stderr

    def command(self, name, *more, codes=frozenset({0})):
        """Run another command of the project; returns the JSON lines of its output."""
        code, out, said = self.run_other(name, *more)
        assert code in codes, said
        return [json.loads(line) for line in out.splitlines()]

    def run_other(self, name, *more):
        """Run another command to the end; returns exit code, standard output and error."""
        names = name.split()
        words = [sys.executable, "-m", "changelog", *names, "--project", str(self.folder), *more]
        done = subprocess.run(
            words, check=False, capture_output=True, text=True, timeout=3 * DEADLINE_S
        )
        return done.returncode, done.stdout, done.stderr

    def catch_up(self, *more):
        code, out, said = self.run("--until", "now", "--json", *more)
        assert code == 0, said
        return json.loads(out.splitlines()[-1])

    def start(self, *more):
        """Start in the background, errors to a file."""
        log = (self.folder / "capture.log").open("wb")
        self.running = subprocess.Popen(
            self._command("--json", *more), stdout=subprocess.PIPE, stderr=log
        )
        log.close()
        return self.running

    def said(self):
        return (self.folder / "capture.log").read_text()

    def stop(self, number=signal.SIGTERM):
        """End the background process by a signal; returns its report."""
        assert self.running is not None
        self.running.send_signal(number)
        out, _ = self.running.communicate(timeout=DEADLINE_S)
        assert self.running.returncode == 0, self.said()
        self.running = None
        return json.loads(out.decode().splitlines()[-1])

    def frontier(self):
        with FrontierLog(self.kafka, frontier_topic(self.prefix)) as frontiers:
            record = frontiers.last(self.prefix)
        return record.frontier if record else None

    def wait_for_frontier(self, past=0, deadline_s=DEADLINE_S):
        """Wait until a frontier lies past an LSN; returns it."""

        def passed():
            assert self.running is None or self.running.poll() is None, self.said()
            try:
                found = self.frontier()
            except UnavailableLogError:
                return None  # a broker that comes back takes its time
            return found if found is not None and found.lsn > past else None

        return wait_until(passed, deadline_s, f"a frontier past {past}\n{self.said()}")

    def end_of_wal(self):
        ((text,),) = self.query("SELECT pg_current_wal_insert_lsn()::text")
        high, low = text.split("/")
        return (int(high, 16) << 32) + int(low, 16)

    def settle(self):
        """Wait until the log holds everything committed so far."""
        self.sql("SELECT pg_logical_emit_message(true, 'test', '')")
        return self.wait_for_frontier(self.end_of_wal() - 1)

    def verified(self):
        """Have the verifier compare the log with the source; returns the rows of each table."""
        (line,) = self.command("verify", "--json")
        assert line["verified"] is True, line
        return {table["view"]: table["rows"] for table in line["tables"]}

    def rows(self, table):
        return self.reader.read(self.frontier(), f"{self.prefix}.{table}").rows

    def kill(self):
        if self.running is not None:
            self.running.kill()
            self.running.communicate()


KILLED = -9
TIMEOUT_S = 120


class CrashingCapture(CaptureCommand):
    """A capture that can be killed at a named point and given a defect."""

    def _words(
        self,
        *,
        kill="",
        defect="",
        until="",
        at="",
        small=False,
        signal_name="",
        hasty=False,
        halts=False,
    ):
        command = [sys.executable, "-m", "tests.support.crashing_capture", str(self.folder)]
        given = {"--until": until, "--kill": kill, "--defect": defect, "--at": at}
        given["--signal"] = signal_name
        command += [word for name, text in given.items() if text for word in (name, text)]
        flags = {"--small": small, "--hasty": hasty, "--halts": halts}
        return [*command, *(name for name, given in flags.items() if given)]

    def attempt(self, *, until="now", **named):
        """Run the crashing capture to its end; returns exit code and standard error."""
        done = subprocess.run(
            self._words(until=until, **named),
            check=False,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        return done.returncode, done.stderr

    def begin(self, **named):
        with (self.folder / "capture.log").open("wb") as log:
            self.running = subprocess.Popen(self._words(**named), stdout=log, stderr=log)

    def crash(self, kill, **named):
        code, said = self.attempt(kill=kill, **named)
        assert code == KILLED, f"capture was not killed at {kill}: {code}\n{said}"

    def finish(self, **named):
        code, said = self.attempt(**named)
        assert code == 0, said
        return said

    def log(self, table="notes"):
        return self.reader.read(self.frontier(), f"{self.prefix}.{table}")

    def differences(self, table="notes"):
        """Return the keys of rows that differ between the fold of the log and the table."""
        rows = {(key,): text for key, text in self.query(f"SELECT id, text FROM {table}")}
        folded = {key: value["text"] for key, value in self.log(table).rows.items()}
        return sorted(key for (key, _) in set(rows.items()) ^ set(folded.items()))

    def check(self, table="notes"):
        """The fold of the log equals the table, and no streamed position went back."""
        log = self.log(table)
        rows = {(key,): text for key, text in self.query(f"SELECT id, text FROM {table}")}
        assert {key: value["text"] for key, value in log.rows.items()} == rows
        assert log.regressions == []

    def sees_defect(self, table="notes"):
        with pytest.raises(AssertionError):
            self.check(table)


def capture_with(kind, *statements, notes=0, settings="", finishes=False):
    """Make the fixture `capture`: a project over an empty database, where statements ran.

    Args:
        kind: a class of captures.
        statements: for the source.
        notes: rows of the table `notes`, which is made before them.
        settings: lines of `[capture]`.
        finishes: the log is brought up to that.
    """

    @pytest.fixture(name="capture")
    def capture(dsn, kafka, registry, prefix, tmp_path):
        made = kind(dsn=dsn, kafka=kafka, registry=registry, prefix=prefix, folder=tmp_path)
        with (tmp_path / "changelog.toml").open("a") as file:
            file.write(settings)
        if notes:
            made.make_notes(notes)
        made.sql(*statements)
        if finishes:
            made.finish()
        yield made
        made.kill()

    return capture
