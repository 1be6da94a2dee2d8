"""Sinks, which serve views: one contract, and a folder for each kind.

Rows come in; a generation that is sealed, served or dropped goes out.
"""
