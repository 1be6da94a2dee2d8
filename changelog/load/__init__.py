"""Bulk loads: the records of topics into a table of PostgreSQL by COPY.

Topics come in; rows and the offsets that were reached go out, in the same transactions.
"""
