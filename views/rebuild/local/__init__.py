"""Rows of tables beside a follower: those that a change leads to, and what a view makes of them.

Records come in, rows of Arrow of the keys that are affected go out. Only a follower imports it.
"""
