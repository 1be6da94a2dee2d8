"""Joins source to sink: a snapshot, then the stream, and frontiers.

Settings come in, and a log that is complete up to its last frontier goes out. Commands may import
it.
"""
