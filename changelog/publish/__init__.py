"""Publishes the results of queries to topics, in one transaction each.

A query comes in; records of its rows, and tombstones for keys that vanished, go out.
"""
