"""A follower's local copies of its tables, and the rows of views computed from them.

Records come in, rows of Arrow of the keys that are affected go out. Only a follower imports it.
"""
