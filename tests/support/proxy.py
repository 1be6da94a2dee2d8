"""A TCP proxy on loopback whose network can fail, and be well again."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from typing import Self

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close sends RST
_PAUSE_S = 0.05
_TRICKLE_BYTES = 400


class Proxy:
    """Passes bytes on between clients of `port` and a server; a context manager.

    `refuse`, `hold`, `reset`, `trickle` and `silence` make the network fail until `heal`.

    Attributes:
        passed: how many bytes servers were sent.
        answered: how many bytes they have sent.
    """

    def __init__(self, port: int, server_port: int) -> None:
        self.port = port
        self._server_port = server_port
        self._pairs: list[socket.socket] = []
        self._lock = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        self._slow = self._mute = False
        self.passed = self.answered = 0
        self._lost: set[int] = set()
        self._closed = threading.Event()
        self._listener: socket.socket | None = None

    def __enter__(self) -> Self:
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self.refuse()
        self._flowing.set()

    def refuse(self) -> None:
        """Take no connection, and reset those that are there."""
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        self.reset()

    def reset(self) -> None:
        """Reset the connections that are there; new ones are taken."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for each in pairs:
            with suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                each.shutdown(socket.SHUT_RDWR)
        for each in pairs:
            each.close()

    def hold(self) -> None:
        """Swallow everything without a word: a black hole."""
        self._flowing.clear()

    def forget(self) -> None:
        """Swallow what the connections that are there carry, for good; new ones work."""
        with self._lock:
            self._lost |= {each.fileno() for each in self._pairs}

    def trickle(self) -> None:
        """Let a few kilobytes a second pass."""
        self._slow = True

    def silence(self) -> None:
        """Let servers hear everything, and nobody what they answer."""
        self._mute = True

    def heal(self) -> None:
        """Pass everything on again; what was held back comes late, as after a partition."""
        self._slow = self._mute = False
        self._flowing.set()
        if self._listener is None:
            self._listen()

    def _listen(self) -> None:
        listener = socket.create_server(("127.0.0.1", self.port), reuse_port=False)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._flowing.wait()
        try:
            server = socket.create_connection(("127.0.0.1", self._server_port))
        except OSError:
            client.close()  # nobody listens behind us
            return
        with self._lock:
            if self._closed.is_set():  # it was held until the end
                client.close()
                server.close()
                return
            self._pairs += [client, server]
        for source, target in ((client, server), (server, client)):
            args = (source, target, source is server)
            threading.Thread(target=self._pump, args=args, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        try:
            while piece := source.recv(_TRICKLE_BYTES if self._slow else 1 << 16):
                self._flowing.wait()
                if source.fileno() in self._lost or (is_answer and self._mute):
                    continue
                if self._slow:
                    self._closed.wait(_PAUSE_S)
                target.sendall(piece)
                if is_answer:
                    self.answered += len(piece)
                else:
                    self.passed += len(piece)
        except OSError:
            pass
        self._flowing.wait()
        with suppress(OSError):
            if source.fileno() not in self._lost:
                target.shutdown(socket.SHUT_WR)
