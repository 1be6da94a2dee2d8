"""Deltas on their way to sinks: a worker for each, and what waits for it merged.

Deltas that are proved come in, and go out to sinks as soon as each can have them.
"""
