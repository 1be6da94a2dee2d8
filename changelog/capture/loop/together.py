"""Several captures under one command: one process for each source, each output line marked.

A process that ends with an error does not end the other ones; the command ends when all have ended,
with the highest exit code. A signal is passed on to all, and each ends as it would alone.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from threading import Lock, Thread
from typing import IO, TextIO

from changelog.runtime.imports import SAFE_PATH

log = logging.getLogger("changelog.capture")

_PR_SET_PDEATHSIG = 1
_LOOK_S = 0.1
_WRITING = Lock()


def run_together(names: Sequence[str], words: Sequence[str], stop: Callable[[], bool]) -> int:
    """Run the command once for each source; return the highest exit code.

    `words` are the command's arguments, without the program. `stop` is called often.
    """
    rest = without_sources(words)
    running = {name: _start_capture(name, rest) for name in names}
    readers = [
        reader for name, process in running.items() for reader in _start_readers(name, process)
    ]
    codes: dict[str, int] = {}
    is_stopping = False
    while len(codes) < len(running):
        if stop() and not is_stopping:
            is_stopping = True
            for process in running.values():
                process.send_signal(signal.SIGTERM)  # does nothing if the process has ended
        for name, process in running.items():
            code = process.poll()
            if code is not None and name not in codes:
                codes[name] = code if code >= 0 else 128 - code
                if code and len(codes) < len(running):
                    log.error('the capture of source "%s" ended with %d', name, codes[name])
        time.sleep(_LOOK_S)
    for reader in readers:
        reader.join()
    return max(codes.values())


def without_sources(words: Sequence[str]) -> list[str]:
    """Return a command without its options about sources.

    >>> without_sources(["capture", "--source", "a,b", "--until", "now", "--all-sources"])
    ['capture', '--until', 'now']
    """
    kept: list[str] = []
    is_value = False
    for word in words:
        if not is_value and word != "--all-sources" and not word.startswith("--source"):
            kept.append(word)
        is_value = word == "--source"
    return kept


def _start_capture(name: str, words: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-m", "changelog", *words, "--source", name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **SAFE_PATH},
        start_new_session=True,  # else Ctrl-C would reach it twice, from the terminal and from us
        preexec_fn=_end_with_parent,  # noqa: PLW1509 - no thread runs yet that could hold a lock
    )


def _end_with_parent() -> None:
    """Make the system end this process cleanly when its parent was killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _start_readers(name: str, process: subprocess.Popen[bytes]) -> list[Thread]:
    """Start the threads that pass on the output lines of a capture."""
    assert process.stdout is not None  # noqa: S101
    assert process.stderr is not None  # noqa: S101
    pairs: list[tuple[IO[bytes], TextIO]] = [
        (process.stdout, sys.stdout),
        (process.stderr, sys.stderr),
    ]
    threads = [Thread(target=_pass_on, args=(name, *pair), daemon=True) for pair in pairs]
    for thread in threads:
        thread.start()
    return threads


def _pass_on(name: str, source: IO[bytes], target: TextIO) -> None:
    with source:
        for line in source:
            text = prefixed(name, line.decode("utf-8", "replace").rstrip("\n"))
            with _WRITING:
                print(text, file=target, flush=True)


def prefixed(name: str, line: str) -> str:
    """Return a line with its source's name: as a key of an object, or before a text.

    >>> prefixed("crm", '{"ok": true}'), prefixed("crm", "resuming")
    ('{"source": "crm", "ok": true}', 'crm | resuming')
    """
    if line.startswith('{"'):
        return f'{{"source": {json.dumps(name)}, {line[1:]}'  # the line's own text is unchanged
    return f"{name} | {line}"
