"""Outputs that take nothing: a pipe that nobody reads any more, and a disk that is full."""

from __future__ import annotations

import os


def closed_pipe() -> int:
    """Open a pipe whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def full_device() -> int:
    return os.open("/dev/full", os.O_WRONLY)
