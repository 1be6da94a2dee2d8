"""Tables of PostgreSQL: generations loaded by COPY, attached to a stable table.

Rows come in, a partition of the table that readers open goes out.
"""
