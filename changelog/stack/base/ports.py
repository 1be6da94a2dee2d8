"""Free ports on the loopback address.

Ports are taken below the range from which the kernel serves outgoing connections: one picked there
could be in use again before the server binds it, or while the stack is down.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Collection

import psutil

from changelog.contract.base.errors import StackError

LOOPBACK = "127.0.0.1"
_FIRST, _LAST = 15_000, 32_000
_TRIES = 500


def is_free(port: int) -> bool:
    """Say whether a server could bind `port` on the loopback address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def pick(taken: Collection[int] = ()) -> int:
    """Return a free port that is none of `taken`."""
    for _ in range(_TRIES):
        port = random.randint(_FIRST, _LAST)  # noqa: S311 - only to keep two stacks apart
        if port not in taken and is_free(port):
            return port
    raise StackError(f"no free port between {_FIRST} and {_LAST} on {LOOPBACK}")


def answers(port: int) -> bool:
    """Say whether something accepts connections on `port`."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1.0):
            return True
    except OSError:
        return False


def owner_of(port: int) -> str:
    """Name the process that listens on `port`, as far as this user may know; else nothing."""
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.laddr and connection.laddr.port == port and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        return ""
    return ""
