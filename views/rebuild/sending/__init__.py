"""Deltas on their way to sinks: each sink has a worker of its own, and waits for no other."""

from __future__ import annotations
