"""Trace a row of a view to the records that it is made of.

A key comes in, the records behind it go out.
"""
