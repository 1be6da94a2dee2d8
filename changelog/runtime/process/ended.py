"""Waiting for a command that runs as a child, and ending it when somebody asks for that."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from typing import AnyStr

_LOOK_S = 0.2


def wait_or_end(
    process: subprocess.Popen[AnyStr],
    stop: threading.Event,
    *,
    end_s: float,
    killed: Callable[[], None] = lambda: None,
) -> bool:
    """Wait for the end of a child; it never outlives this call.

    When `stop` is set the child is asked to end by SIGTERM; after `end_s` seconds it is killed, and
    `killed` is called just before that.

    Returns:
        Whether the end was asked for.
    """
    try:
        while process.poll() is None:
            if stop.wait(_LOOK_S):
                process.terminate()
                try:
                    process.wait(end_s)
                except subprocess.TimeoutExpired:
                    killed()
                return True
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return False
