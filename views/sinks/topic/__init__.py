"""Compacted topics of Kafka, so that other projects read a view as a log.

Rows come in, keyed records go out, switched and brought forward by transactions.
"""
