"""The worker processes of a backfill, and the copying of one segment.

Each worker is a process with its own connection in the exported snapshot and its own producer. They
are processes because Python threads would encode one chunk at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace

from changelog.capture.copy.snapshot import Copied, CopyJob, Segment, WorkerServers
from changelog.capture.copy.snapshot_worker import Reply, Request
from changelog.capture.state.policy import TABLE_ERRORS
from changelog.contract.base.errors import ChangelogError
from changelog.runtime.process.child import Child
from changelog.source.snapshot.snapshot import TablesBusyError

_POLL_S = 0.2

OnCopied = Callable[[CopyJob, Copied], None]
OnFailed = Callable[[CopyJob, ChangelogError], None]


class CopyWorkers:
    """Worker processes, with one thread for each that hands it chunks."""

    def __init__(self, servers: WorkerServers, workers: int) -> None:
        """Start the processes; they import their modules while the caller continues."""
        self._all = [_Worker(_with_own_id(servers, number)) for number in range(workers)]
        self._free = list(self._all)
        self._pool = ThreadPoolExecutor(max_workers=workers)
        self._lock = threading.Lock()

    def copy(
        self,
        segment: Segment,
        jobs: Iterable[CopyJob],
        *,
        on_copied: OnCopied,
        on_failed: OnFailed,
        seconds: float,
        stop: Callable[[], bool],
        on_wait: Callable[[], None],
    ) -> bool:
        """Copy chunks until the time is up, and finish the ones begun; return False on a stop.

        Jobs are taken in order, and some may be left over. `on_failed` is called with each chunk
        that fails because of its table, and may raise. After a stop only `dismiss` may be called.

        Raises ChangelogError: a worker's error, or that a worker died.
        """
        remaining = iter(jobs)
        until = time.monotonic() + seconds
        running: dict[Future[Copied | None], CopyJob] = {}
        busy = False
        while not stop():
            while len(running) < len(self._all) and not busy and time.monotonic() < until:
                job = next(remaining, None)
                if job is None:
                    break
                running[self._pool.submit(self._copy, segment, job)] = job
            if not running:
                return True
            done, _ = wait(running, timeout=_POLL_S, return_when=FIRST_COMPLETED)
            on_wait()
            for future in done:
                job = running.pop(future)
                try:
                    copied = future.result()
                except TABLE_ERRORS as error:
                    on_failed(job, error)
                    continue
                if copied is None:
                    busy = True  # somebody waits for a table's lock: end the segment
                else:
                    on_copied(job, copied)
        return False

    def _copy(self, segment: Segment, job: CopyJob) -> Copied | None:
        with self._lock:
            worker = self._free.pop()
        try:
            return worker.copy(segment, job)
        except TablesBusyError:
            return None
        finally:
            with self._lock:
                self._free.append(worker)

    def rest(self) -> None:
        """Make the workers release the segment's snapshot."""
        for worker in self._all:
            worker.rest()

    def dismiss(self) -> None:
        """Kill the processes."""
        for worker in self._all:
            worker.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)
        for worker in self._all:
            worker.close()


def worker_id(transactional_id: str, number: int) -> str:
    """Return the transactional id of the worker with a number."""
    return f"{transactional_id}.{number}"


def _with_own_id(servers: WorkerServers, number: int) -> WorkerServers:
    """Return the servers with a transactional id of this worker, if the settings have one."""
    if not servers.transactional_id:
        return servers
    return replace(servers, transactional_id=worker_id(servers.transactional_id, number))


class _Worker:
    """A process that copies rows of tables."""

    def __init__(self, servers: WorkerServers) -> None:
        self._segment = 0
        self._child = Child(
            "changelog.capture.copy.snapshot_worker",
            name="a snapshot worker",
            hint="see the lines above; start again, what was copied stays",
        )
        self._child.send(servers)

    def copy(self, segment: Segment, job: CopyJob) -> Copied:
        """Copy a chunk; for the first chunk of a segment, switch to its snapshot before."""
        if self._segment != segment.number:
            self._ask(segment)
            self._segment = segment.number
        copied = self._ask(job)
        assert isinstance(copied, Copied)  # noqa: S101 - the answer to a job
        return copied

    def rest(self) -> None:
        if self._segment:
            self._segment = 0
            self._ask(None)

    def _ask(self, request: Request) -> Copied | None:
        self._child.send(request)
        reply: Reply = self._child.receive()
        if isinstance(reply, ChangelogError):
            self._segment = 0
            raise reply
        return reply

    def kill(self) -> None:
        self._child.kill()

    def close(self) -> None:
        self._child.close()
