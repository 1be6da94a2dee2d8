"""The settings that the client of Kafka knows, told by its own copy of librdkafka."""

from __future__ import annotations

import ctypes
import os
from tempfile import TemporaryFile

from confluent_kafka import cimpl

_LIBC = None
"""The names of the process itself, in which C's library is."""


def client_properties() -> str:
    """Return librdkafka's table of its settings, in Markdown: ranges, defaults, what they mean."""
    # A handle finds the names of what the library itself is linked with, too: librdkafka's.
    client, libc = ctypes.CDLL(cimpl.__file__), ctypes.CDLL(_LIBC)
    libc.fdopen.restype = ctypes.c_void_p
    with TemporaryFile() as taken:
        stream = ctypes.c_void_p(libc.fdopen(os.dup(taken.fileno()), b"w"))
        client.rd_kafka_conf_properties_show(stream)
        libc.fclose(stream)
        taken.seek(0)
        return taken.read().decode()
