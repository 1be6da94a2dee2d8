"""The settings of the Kafka client, as its own copy of librdkafka lists them."""

from __future__ import annotations

import ctypes
import os
from tempfile import TemporaryFile

from confluent_kafka import cimpl

_LIBC = None
"""For `CDLL`: the process itself, which has the C library's functions."""


def client_properties() -> str:
    """Return librdkafka's table of its settings, in Markdown: ranges, defaults, meanings."""
    # The handle of confluent-kafka's extension also finds the functions of librdkafka.
    client, libc = ctypes.CDLL(cimpl.__file__), ctypes.CDLL(_LIBC)
    libc.fdopen.restype = ctypes.c_void_p
    with TemporaryFile() as taken:
        stream = ctypes.c_void_p(libc.fdopen(os.dup(taken.fileno()), b"w"))
        client.rd_kafka_conf_properties_show(stream)
        libc.fclose(stream)
        taken.seek(0)
        return taken.read().decode()
