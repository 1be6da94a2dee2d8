"""Helpers of the verifier: reading and decoding are Python's work, which one core does at a time.

The records of a large topic are read, and its survivors decoded, by processes of their own. What
they give is put together here, and compared in one place as before.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress

import pyarrow as pa

from changelog.runtime.process.child import Child
from views.verify.processes.job import Done, Job
from views.verify.values.faults import Quarantine

_MOST = 8
_WAIT_S = 0.1


def helpers() -> int:
    """Return the number of helpers that suits this machine's cores."""
    ours = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(_MOST, ours or 1)


def done_by_helpers(jobs: Iterable[Job], quarantine: Quarantine | None) -> Iterator[pa.Table]:
    """Do jobs in helpers; returns the tables of all, in no order.

    Args:
        jobs: taken one by one, as helpers get free.
        quarantine: takes the records that the helpers quarantined.

    Raises:
        ChangelogError: the first error of a job, or a helper died.
    """
    with closing(_Crew(jobs, helpers())) as crew:
        for reply in crew.replies():
            if isinstance(reply, pa.Table):
                yield reply
            elif quarantine is not None and reply.quarantine is not None:
                quarantine.merge(reply.quarantine)


class _Crew:
    """Helper processes, each with a thread that sends it jobs and receives its replies."""

    def __init__(self, jobs: Iterable[Job], count: int) -> None:
        self._left, self._lock = iter(jobs), threading.Lock()
        self._made: queue.Queue[pa.Table | Done | BaseException | None] = queue.Queue(2 * count)
        self._stopped = threading.Event()
        self._children = [
            Child(
                "views.verify.processes.helper",
                name="a helper of the verifier",
                hint="did the machine run out of memory? verify again",
            )
            for _ in range(count)
        ]
        self._threads = [
            threading.Thread(target=self._direct, args=(child,), name="verify-helper")
            for child in self._children
        ]
        for thread in self._threads:
            thread.start()

    def replies(self) -> Iterator[pa.Table | Done]:
        """Yield the replies until all jobs are done; raises the first error."""
        working = len(self._threads)
        while working:
            reply = self._made.get()
            if isinstance(reply, BaseException):
                raise reply
            if reply is None:
                working -= 1
            else:
                yield reply

    def _direct(self, child: Child) -> None:
        try:
            while not self._stopped.is_set() and (job := self._next()) is not None:
                child.send(job)
                while isinstance(reply := child.receive(), pa.Table):
                    self._put(reply)
                self._put(reply)
        except BaseException as error:  # noqa: BLE001 - goes to whoever reads
            self._put(error)
        self._put(None)

    def _next(self) -> Job | None:
        with self._lock:
            return next(self._left, None)

    def _put(self, reply: pa.Table | Done | BaseException | None) -> None:
        while not self._stopped.is_set():
            with suppress(queue.Full):
                self._made.put(reply, timeout=_WAIT_S)
                return

    def close(self) -> None:
        """End the helpers, whatever they do."""
        self._stopped.set()
        for child in self._children:
            child.kill()
        for thread in self._threads:
            thread.join()
        for child in self._children:
            child.close()
