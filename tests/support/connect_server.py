"""A Spark Connect server of the tests, and rebuilds on it as processes of their own.

Spark takes every session of a process for one on a server once there was one, so what asks a
server does not do so in the process of the tests.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import psutil

from changelog.stack.base.ports import LOOPBACK, pick
from changelog.stack.base.process import family, send
from replay.spark.server_token import TOKEN
from tests.support.captured_project import SHORT_LIVED, CapturedProject, Ran
from tests.support.wait import wait_until

REPOSITORY = Path(__file__).parents[2]
START_S = 240
REBUILD_S = 300
_ONLINE = re.compile(r"(\d+)\s+session\(s\) are online")


def environment() -> dict[str, str]:
    """Return this process's variables without the token that an earlier test's session has left.

    The server would ask for that one, and a rebuild would send it.
    """
    return {name: value for name, value in os.environ.items() if name != TOKEN}


class ConnectServer:
    """`changelog spark-server` on two cores of this machine."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        """Take a folder of its own, and settings of Spark beside those of all tests."""
        self._directory = directory
        self._port, self._pages = pick(), pick()
        self._process: subprocess.Popen[bytes] | None = None
        own = {
            "spark.driver.extraJavaOptions": SHORT_LIVED,
            "spark.ui.enabled": "true",
            "spark.ui.port": str(self._pages),
            **(settings or {}),
        }
        lines = [f'"{name}" = {json.dumps(value)}\n' for name, value in own.items()]
        text = "[spark.settings]\n" + "".join(lines)
        (directory / "changelog.toml").write_text(text, encoding="utf-8")
        # A project has a folder of that name, as one of our packages has; the worst is a package.
        (directory / "views").mkdir(exist_ok=True)
        (directory / "views" / "__init__.py").touch()

    @property
    def port(self) -> int:
        return self._port

    @property
    def environment(self) -> str:
        """Environment variables that its documentation names."""
        (one,) = httpx.get(f"{self._page}/api/v1/applications", timeout=30).json()
        place = f"{self._page}/api/v1/applications/{one['id']}/environment"
        return httpx.get(place, timeout=30).text

    @property
    def url(self) -> str:
        return f"sc://{LOOPBACK}:{self._port}"

    def __enter__(self) -> Self:
        """Start it and wait until it answers."""
        self.start()
        return self

    def start(self) -> None:
        """Start it and wait until it answers."""
        words = [sys.executable, "-m", "changelog", "spark-server", "--port", str(self._port)]
        words += ["--master", "local[2]", "--project", str(self._directory)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                words, cwd=self._directory, stdout=log, stderr=log, env=environment()
            )
        try:
            wait_until(self._is_up, START_S, "the Spark Connect server is up")
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it by a signal, as whoever runs it does."""
        assert self._process is not None
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(60)
        ended = self._process.poll()
        self.stop()
        assert ended == 0, self.said()

    def stop(self) -> None:
        """End every process of it as a machine that loses its power does."""
        if self._process is not None and self._process.poll() is None:
            send(family(psutil.Process(self._process.pid)), signal.SIGKILL)
            self._process.wait(30)

    def sessions(self) -> int:
        """Return how many clients it keeps something for."""
        found = _ONLINE.search(httpx.get(f"{self._page}/connect/", timeout=30).text)
        assert found is not None
        return int(found[1])

    def jobs(self, status: str) -> int:
        """Return how many of its jobs are `running`, `succeeded`, `failed`."""
        places = f"{self._page}/api/v1/applications"
        (one,) = httpx.get(places, timeout=30).json()
        jobs = httpx.get(f"{places}/{one['id']}/jobs?status={status}", timeout=30).json()
        return len(jobs)

    def said(self) -> str:
        return self._log.read_text("utf-8", "replace")[-4000:]

    @property
    def _log(self) -> Path:
        return self._directory / "log.txt"

    @property
    def _page(self) -> str:
        return f"http://{LOOPBACK}:{self._pages}"

    def _is_up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.said()
        return self.url in self.said()


class Rebuilding:
    """`rebuild-view` on a server, as a process of its own."""

    def __init__(
        self, project: CapturedProject, url: str, *words: str, defect: str | None = None
    ) -> None:
        self._errors = project.root / f"{uuid.uuid4().hex}.txt"
        command = [sys.executable, "-m", "tests.support.crashing_rebuild"]
        command += ["--defect", defect] if defect else []
        command += ["--", "--project", str(project.root), "--master", url, "--json", *words]
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=errors, env=environment()
            )

    def ended(self) -> Ran:
        out, _ = self.process.communicate(timeout=REBUILD_S)
        print(self.said())
        return Ran(self.process.returncode, out.decode(), self.said())

    def said(self) -> str:
        """Return what it wrote to standard error."""
        return self._errors.read_text("utf-8")

    def results(self) -> dict[str, dict]:
        """Return the result of each view of a rebuild that went well."""
        ran = self.ended()
        assert ran.code == 0, ran.err
        return {each["view"]: each for each in map(json.loads, ran.out.splitlines())}
