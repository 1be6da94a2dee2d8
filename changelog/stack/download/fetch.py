"""Fetch Java archives once: checksummed, cached outside the checkout, resumed where they stopped.

A file in the cache was verified before it was renamed into its place, and is again by each process
that uses it: who can write there could else have programs of theirs run by others. That takes a
tenth of a second for what Spark needs, and no network. An interrupted fetch keeps every whole file;
the next one asks only for the rest.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from changelog.contract.base.errors import StackError
from changelog.stack.base.places import cache_dir, is_root, make_directory
from changelog.stack.download import jre
from changelog.stack.download.artifacts import Artifact, pin_of, spark_artifacts
from changelog.stack.download.ivy import Ivy

log = logging.getLogger("changelog.stack")

_ATTEMPTS = 3
_SPARE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """Progress of a fetch, without the artifacts that were already in the cache."""

    artifacts: int
    artifacts_total: int
    bytes: int
    bytes_total: int


Report = Callable[[FetchProgress], None]


def spark_jars(store: str | None) -> list[Path]:
    """Return the jars that a Spark session of ours needs in addition to pyspark's.

    Args:
        store: with those that reach a store of this kind (`changelog.runtime.stores`).

    Raises:
        ConfigurationError: there are none for the installed Spark.
        StackError: one cannot be fetched.
    """
    return resolve(spark_artifacts(store))


def resolve(artifacts: Sequence[Artifact], on_progress: Report | None = None) -> list[Path]:
    """Return the files of `artifacts`, in order, fetching the ones missing in the cache.

    Without `on_progress` a download shows itself on standard error: a bar on a terminal, plain
    lines elsewhere.
    """
    store = cache_dir() / "artifacts"
    if _missing(store, artifacts):
        make_directory(store)
        with FileLock(store / ".lock"):
            missing = _missing(store, artifacts)
            if missing and on_progress is not None:
                _fetch(store, missing, on_progress)
            elif missing:
                with download_display() as display:
                    _fetch(store, missing, display)
    return [_place(store, artifact) for artifact in artifacts]


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _place(store: Path, artifact: Artifact) -> Path:
    return store / artifact.group / artifact.file_name


def _is_there(store: Path, artifact: Artifact) -> bool:
    path, pin = _place(store, artifact), pin_of(artifact)
    try:
        seen = path.stat()
    except FileNotFoundError:
        return False
    if seen.st_size != pin.size_bytes:
        return False
    if _digest(path, seen.st_ino, seen.st_mtime_ns, seen.st_ctime_ns) == pin.sha256:
        return True
    log.warning("%s is not what was fetched: it is fetched anew", path)
    return False


@functools.lru_cache(maxsize=512)
def _digest(path: Path, _inode: int, _changed_ns: int, _moved_ns: int) -> str:
    """Return the digest of a file as it is; one that was changed meanwhile is read again."""
    return sha256_of(path)


def _missing(store: Path, artifacts: Sequence[Artifact]) -> list[Artifact]:
    return [artifact for artifact in dict.fromkeys(artifacts) if not _is_there(store, artifact)]


def _fetch(store: Path, artifacts: Sequence[Artifact], report: Report) -> None:
    ivy = Ivy(java=jre.bare_java(), work=store / ".ivy")
    _check_space(store, artifacts)
    output = ""
    missing = list(artifacts)

    def poll() -> None:
        _settle(store, ivy, missing)
        report(_measure(store, ivy, artifacts))

    try:
        poll()  # what an interrupted fetch left whole
        for _ in range(_ATTEMPTS):
            missing = _missing(store, artifacts)
            if not missing:
                break
            output = ivy.fetch(missing, poll)
        missing = _missing(store, artifacts)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _no_space(store) from error
        raise
    if missing:
        raise _not_fetched(store, missing, output)
    shutil.rmtree(ivy.work, ignore_errors=True)


def _settle(store: Path, ivy: Ivy, artifacts: Sequence[Artifact]) -> None:
    """Verify whole files and move them to their place."""
    for artifact in artifacts:
        fetched = ivy.file(artifact)
        if not fetched.is_file():
            continue
        pin = pin_of(artifact)
        actual = sha256_of(fetched)
        if actual != pin.sha256:
            fetched.unlink()
            raise StackError(
                f"{artifact} has the wrong checksum: {actual} instead of {pin.sha256}; refused",
                hint="the download or the repository is not to be trusted: try another network",
            )
        if is_root():
            fetched.chmod(0o644)
        fetched.replace(make_directory(store / artifact.group) / artifact.file_name)


def _measure(store: Path, ivy: Ivy, artifacts: Sequence[Artifact]) -> FetchProgress:
    sizes = {artifact: pin_of(artifact).size_bytes for artifact in artifacts}
    done = [artifact for artifact in artifacts if _is_there(store, artifact)]
    coming = sum(ivy.size_bytes(artifact) for artifact in artifacts if artifact not in done)
    return FetchProgress(
        artifacts=len(done),
        artifacts_total=len(artifacts),
        bytes=sum(sizes[artifact] for artifact in done) + coming,
        bytes_total=sum(sizes.values()),
    )


def _check_space(store: Path, artifacts: Sequence[Artifact]) -> None:
    needed = sum(pin_of(artifact).size_bytes for artifact in artifacts) + _SPARE_BYTES
    if shutil.disk_usage(store).free < needed:
        raise _no_space(store, needed)


def _no_space(store: Path, needed: int = 0) -> StackError:
    amount = f" ({needed >> 20} MiB are needed)" if needed else ""
    return StackError(
        f"no space left on the disk of {store}{amount}",
        hint="make room, or choose another cache with CHANGELOG_CACHE",
    )


def _not_fetched(store: Path, missing: Sequence[Artifact], output: str) -> StackError:
    if "No space left on device" in output:
        return _no_space(store)
    facts = [line.strip() for line in output.splitlines() if _tells_why(line)]
    names = ", ".join(str(artifact) for artifact in missing[:3])
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""  # noqa: PLR2004
    why = f": {facts[0]}" if facts else ""
    return StackError(
        f"could not fetch {names}{more}{why}",
        hint="check the network and run it again: what has arrived is kept",
    )


def _tells_why(line: str) -> bool:
    words = ("UnknownHost", "SSL", "PKIX", "timed out", "refused", "not found", "invalid sha1")
    return any(word.lower() in line.lower() for word in words)


_LINE_EVERY_SECONDS = 5.0


@contextmanager
def download_display(console: Console | None = None) -> Iterator[Callable[[FetchProgress], None]]:
    """Return a function that shows the progress it is called with."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield _ProgressLines(console)
        return
    columns = (
        TextColumn("{task.fields[count]} files"),
        BarColumn(10),  # all of it fits on 60 columns
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("download", total=None, count="")

        def show(progress: FetchProgress) -> None:
            count = f"{progress.artifacts}/{progress.artifacts_total}"
            bar.update(task, completed=progress.bytes, total=progress.bytes_total, count=count)

        yield show


class _ProgressLines:
    """A line at the start, every few seconds, and at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = 0.0

    def __call__(self, progress: FetchProgress) -> None:
        done = progress.artifacts == progress.artifacts_total
        now = time.monotonic()
        if not done and now - self._last < _LINE_EVERY_SECONDS:
            return
        self._last = now
        self._console.print(
            f"downloading {progress.artifacts}/{progress.artifacts_total} files,"
            f" {progress.bytes / 1e6:.1f} of {progress.bytes_total / 1e6:.1f} MB",
            highlight=False,
        )
