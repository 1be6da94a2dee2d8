"""Free ports on the loopback address.

Ports are taken below the range from which the kernel serves outgoing connections: one picked there
could be in use again before the server binds it, or while the stack is down.

A picked port is spoken for until its server binds it: two stacks that start in the same second
would else pick the same one now and then. A datagram socket of the same number says so to every
other process that picks, and goes with the process that holds it; the servers here use streams.
"""

from __future__ import annotations

import os
import random
import socket
from collections import deque
from collections.abc import Collection

import psutil

from changelog.contract.base.errors import StackError

LOOPBACK = "127.0.0.1"
_FIRST, _LAST = 15_000, 32_000
_TRIES = 500
_random = random.SystemRandom()  # nobody's seed makes two processes pick alike
_MOST_HELD = 256
_spoken_for: deque[int] = deque()
"""Descriptors of the sockets: open until the process ends, which an object would be warned of."""


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
    """Return a free port that is none of `taken` and that no other process picks meanwhile."""
    for _ in range(_TRIES):
        port = _random.randint(_FIRST, _LAST)
        if port not in taken and _speak_for(port):
            return port
    raise StackError(f"no free port between {_FIRST} and {_LAST} on {LOOPBACK}")


def _speak_for(port: int) -> bool:
    """Hold the port's number against others who pick; False if it is held or bound already."""
    claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        claim.bind((LOOPBACK, port))
    except OSError:
        claim.close()
        return False
    if not is_free(port):
        claim.close()
        return False
    _spoken_for.append(claim.detach())
    if len(_spoken_for) > _MOST_HELD:
        os.close(_spoken_for.popleft())
    return True


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
