"""A Spark standalone cluster on this machine, from the pyspark package itself.

One master and some workers, each a process of its own with a folder of its own for its work and
for what it spills, on loopback and free ports. What a worker starts, its executors, are its
children.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import psutil

from changelog.stack.base.ports import LOOPBACK, pick
from changelog.stack.base.process import family, send
from changelog.stack.download.ivy import pyspark_jars_dir
from changelog.stack.download.jre import java_home
from tests.support.captured_project import SHORT_LIVED
from tests.support.wait import wait_until

START_S = 240
"""On a machine with other work than this each process takes a minute."""


class SparkCluster:
    """A master with workers of one core each."""

    def __init__(self, directory: Path, *, workers: int = 2, memory_mb: int = 900) -> None:
        self._directory = directory
        self._memory_mb = memory_mb
        self._port, self._pages = pick(), pick()
        self._master: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []
        self._wanted = workers
        self._started = 0

    @property
    def url(self) -> str:
        return f"spark://{LOOPBACK}:{self._port}"

    def __enter__(self) -> Self:
        """Start it and wait until every worker is registered."""
        try:
            words = ["--port", str(self._port), "--webui-port", str(self._pages)]
            self._master = self._start("master", "master.Master", words)
            for _ in range(self._wanted):
                self.add_worker()
            self.wait_until_whole()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def add_worker(self) -> None:
        self._started += 1
        name = f"worker{self._started}"
        words = ["--cores", "1", "--memory", f"{self._memory_mb}m", "--port", str(pick())]
        words += ["--webui-port", str(pick()), "--work-dir", str(self._directory / name / "work")]
        self.workers.append(self._start(name, "worker.Worker", [*words, self.url]))

    def wait_until_whole(self) -> None:
        """Wait until as many workers as there should be are registered."""
        wait_until(lambda: self.alive() == self._wanted, START_S, "the workers are registered")

    def alive(self) -> int:
        """Return how many workers the master counts on."""
        assert self._master is not None
        assert self._master.poll() is None, self._said("master")
        with suppress(httpx.HTTPError, ValueError):  # a page of HTML, before it serves this one
            state = httpx.get(f"http://{LOOPBACK}:{self._pages}/json/", timeout=5).json()
            return sum(worker["state"] == "ALIVE" for worker in state["workers"])
        return 0

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """End a worker and its executors as a machine that loses its power does."""
        send(family(psutil.Process(worker.pid)), signal.SIGKILL)
        worker.wait(30)

    def stop(self) -> None:
        for process in [*self.workers, *([self._master] if self._master else [])]:
            if process.poll() is None:
                self.kill(process)
        self.workers, self._master = [], None

    def _start(self, name: str, role: str, words: Sequence[str]) -> subprocess.Popen[bytes]:
        home = self._directory / name
        home.mkdir(parents=True)
        command = [str(pyspark_jars_dir().parent / "bin" / "spark-class")]
        command += [f"org.apache.spark.deploy.{role}", "--host", LOOPBACK, *words]
        own = {
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(pyspark_jars_dir().parent),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_LOCAL_DIRS": str(home / "local"),
            "SPARK_DAEMON_MEMORY": "192m",
            # Its REST server has one port for all masters of a machine.
            "SPARK_DAEMON_JAVA_OPTS": f"{SHORT_LIVED} -Dspark.master.rest.enabled=false",
            "PYSPARK_PYTHON": sys.executable,
        }
        with (home / "log.txt").open("wb") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, **own}, cwd=home
            )

    def _said(self, name: str) -> str:
        return (self._directory / name / "log.txt").read_text("utf-8", "replace")[-4000:]
