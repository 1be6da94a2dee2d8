"""Results of queries to topics, whole or not at all.

A query comes in, records of its rows and tombstones for what vanished go out, in one transaction.
"""
