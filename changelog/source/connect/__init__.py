"""Connections, and what the server is: identity, settings, rights, WAL that it keeps.

A connection string comes in; a connection and facts of the server go out.
"""
