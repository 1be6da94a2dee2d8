"""PostgreSQL in: connections, stream, catalogue, snapshots.

A connection string comes in; changes, tables and rows go out. Capture may import it, readers of
the log may not.
"""
