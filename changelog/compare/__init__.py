"""Compares any copy of a table with PostgreSQL, while both are being written.

A table or query of PostgreSQL and a copy of it come in, a report goes out. The digests of buckets
show where the two differ; only the rows of differing buckets are fetched, and a difference counts
only if it lasts longer than the copy may lag.
"""
