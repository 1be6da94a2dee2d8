"""A server that asks for a password in clear, as PostgreSQL may, and keeps what it is told."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

_SSL_REQUEST, _GSS_REQUEST = 80877103, 80877104


@contextmanager
def asking_server() -> Iterator[tuple[int, list[bytes]]]:
    """Serve; gives the port, and the messages that followed the question."""
    told = list[bytes]()
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=_serve, args=(listener, told), daemon=True)
        thread.start()
        yield listener.getsockname()[1], told
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def _serve(listener: socket.socket, told: list[bytes]) -> None:
    while True:
        try:
            link, _ = listener.accept()
        except OSError:
            return
        link.settimeout(10)
        with closing(link), suppress(OSError, struct.error):
            while True:
                size, code = struct.unpack("!ii", link.recv(8, socket.MSG_WAITALL))
                link.recv(size - 8, socket.MSG_WAITALL)
                if code not in {_SSL_REQUEST, _GSS_REQUEST}:
                    break
                link.sendall(b"N")
            link.sendall(b"R" + struct.pack("!ii", 8, 3))
            told.append(link.recv(4096))
