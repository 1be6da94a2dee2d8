"""A snapshot worker: segments and chunks on standard input, results on standard output.

It ends at the end of its input, and the kernel kills it if its parent is killed: an orphaned worker
would go on to write rows of an outdated snapshot.
"""

from __future__ import annotations

from changelog.capture.copy.snapshot import ChunkCopier, Copied, CopyJob, Segment, WorkerServers
from changelog.contract.base.errors import ChangelogError
from changelog.runtime.process import child

Request = WorkerServers | Segment | CopyJob | None
"""The servers come first; None ends a segment."""

Reply = Copied | ChangelogError | None


def main() -> None:
    """Serve until the input ends."""
    copier: ChunkCopier | None = None
    request: Request
    for request in child.requests():
        if isinstance(request, WorkerServers):
            copier = ChunkCopier(request)
            continue
        assert copier is not None  # noqa: S101 - the servers come first
        try:
            reply = _answer(copier, request)
        except ChangelogError as error:
            copier.close()  # a producer whose record was refused cannot be used any more
            reply = error
        child.answer(reply)


def _answer(copier: ChunkCopier, request: Segment | CopyJob | None) -> Reply:
    match request:
        case Segment():
            copier.begin(request)
        case CopyJob():
            return copier.copy(request)
        case None:
            copier.end()
    return None


if __name__ == "__main__":
    main()
