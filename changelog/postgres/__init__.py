"""Connection strings of PostgreSQL, settings of every connection, and what its errors mean.

Errors of psycopg2 and connection strings come in; what they mean goes out: whether it passes, and a
hint. Each caller raises its own error. The verifier connects by itself.
"""
