"""A reader of the documents at a shell: commands one by one, some that end, some that follow."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from psycopg2.extensions import parse_dsn

from changelog.stack.base.state import Endpoints
from changelog.stack.servers.postgres import bin_dir
from tests.support.captured_project import SHORT_LIVED
from tests.support.page import Block, blocks_of
from tests.support.wait import wait_until

DEADLINE_S = 300
"""Of one command: a rebuild on a machine that is busy."""
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|(?P<comment>\s+#.*)")


def commands_of(page: Path) -> Iterator[str]:
    """Yield the commands of the page's blocks ```sh, but for those that say why they do not run."""
    for block in blocks_of(page):
        if block.kind == "sh" and not block.why_not:
            yield from (line for line in block.text.splitlines() if line.strip())


def plain(command: str) -> str:
    """Return a command without the comment behind it."""
    return _QUOTED.sub(lambda found: "" if found["comment"] else found[0], command).strip()


def block_of(page: Path, kind: str, start: str) -> Block:
    """Return the one block of a kind whose text begins so."""
    (found,) = (
        each for each in blocks_of(page) if each.kind == kind and each.text.startswith(start)
    )
    return found


def address_of(dsn: str) -> str:
    parts = parse_dsn(dsn)
    return f"postgresql://{parts['user']}@{parts['host']}:{parts['port']}/{parts['dbname']}"


def reader_of(folder: Path, endpoints: Endpoints, dsn: str, name: str = "", **more: str) -> Shell:
    """Return the shell of a reader whose servers stand in the environment, and in no file.

    The servers are shared with other tests: slot and topics, which pages leave to their defaults,
    are called `name` here if there is one.
    """
    folders = (str(Path(sys.executable).parent), str(bin_dir()), os.environ["PATH"])
    environment = {
        **os.environ,
        "PATH": os.pathsep.join(folders),
        "DATABASE": dsn,
        "SEARCH": str(endpoints.search),
        "CHANGELOG_KAFKA_BROKERS": endpoints.brokers,
        "CHANGELOG_REGISTRY_URL": endpoints.schema_registry,
        "CHANGELOG_SINKS_SEARCH_URL": str(endpoints.search),
        "CHANGELOG_SPARK_SETTINGS": json.dumps({"spark.driver.extraJavaOptions": SHORT_LIVED}),
        "COLUMNS": "140",
    }
    if name:
        environment |= dict.fromkeys(
            ("CHANGELOG_CAPTURE_SLOT", "CHANGELOG_CAPTURE_TOPIC_PREFIX"), name
        )
    return Shell(folder, {**environment, **more})


@dataclass(frozen=True)
class Shell:
    """Where commands run as a reader of the page runs them."""

    folder: Path
    environment: Mapping[str, str]

    def run(self, command: str, answer: str = "") -> str:
        """Return what a command prints; it has to end with 0. `answer` is typed on a terminal."""
        ours, theirs = pty.openpty()
        try:
            os.write(ours, answer.encode())
            ran = subprocess.run(
                ["bash", "-o", "pipefail", "-c", command],
                stdin=theirs if answer else subprocess.DEVNULL,
                capture_output=True, text=True, cwd=self.folder, env=self.environment,
                timeout=DEADLINE_S, check=False,
            )  # fmt: skip
        finally:
            os.close(ours)
            os.close(theirs)
        assert ran.returncode == 0, f"{command}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def sql(self, statements: str) -> str:
        """Return what psql prints for statements that are sent to `DATABASE`, tuples alone."""
        return self.run(
            f"psql -qAtv ON_ERROR_STOP=1 \"$DATABASE\" <<'END_OF_SQL'\n{statements}\nEND_OF_SQL"
        )

    @contextmanager
    def following(self, command: str) -> Iterator[Callable[[], str]]:
        """Run a command that ends by no itself beside the block; gives what it has printed so far.

        SIGTERM has to end it well behind the block.
        """
        with tempfile.TemporaryFile("w+b") as said:
            running = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=self.folder,
                env=self.environment, start_new_session=True,
            )  # fmt: skip

            def printed() -> str:
                text = os.pread(said.fileno(), 1 << 20, 0).decode()
                assert running.poll() is None, f"{command}: {text}"
                return text

            try:
                yield printed
                text = printed()
                running.send_signal(signal.SIGTERM)
                assert running.wait(DEADLINE_S) == 0, f"{command}: {text}"
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(running.pid, signal.SIGKILL)
                running.wait()

    @contextmanager
    def capturing(self, slot: str) -> Iterator[None]:
        """Capture beside the block, which begins when the slot is read."""
        is_read = f"SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'"
        with self.following("changelog capture") as said:

            def begun() -> bool:
                said()  # fails when it has ended
                return self.sql(is_read).strip() == "t"

            wait_until(begun, DEADLINE_S, "the slot is read")
            yield

    def follow(self, command: str, is_there: Callable[[str], object]) -> str:
        """Return what a command has printed once that is enough; a signal has to end it well."""
        with self.following(command) as printed:
            wait_until(lambda: is_there(printed()), DEADLINE_S, command)
            return printed()
