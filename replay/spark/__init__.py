"""Spark itself: a session, a Connect server, what it must have, its warehouse.

Settings come in, a session goes out.
"""
