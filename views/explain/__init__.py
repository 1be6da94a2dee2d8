"""Trace a row of a view to the records that it is made of.

The key of a row comes in, the records that the row is made of go out.
"""
