"""Bulk loads without C: batches of records, and their reader.

The same comes in and goes out as in C; rows are left to the caller.
"""
