"""Proves that what is served follows from the log, with code of its own.

A log and a served view come in, a report goes out. It imports nothing of replay, Spark or the sinks
that it checks.
"""
