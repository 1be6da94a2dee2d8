"""Spark sessions: local, on a Connect server, their requirements, and their warehouse.

Settings come in, a session goes out.
"""
