"""Views as tables of PostgreSQL: generations loaded by COPY, shown in a stable table.

Rows come in; a table for each generation goes out, and a stable one with its partition or its rows.
"""
