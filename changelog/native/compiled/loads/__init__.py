"""Bulk loads in C: batches of records, their reader, and rows for COPY.

Settings of the client and slices of partitions come in, records and tuples of COPY go out.
"""
