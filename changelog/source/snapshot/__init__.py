"""Rows as they stand: chunks of a snapshot, COPY, TOAST values that the stream left out.

A relation and a range of its key come in, rows go out.
"""
