"""Views as tables of PostgreSQL: generations loaded by COPY, shown in a stable table.

Each generation is a table; readers open one that has it as its partition, or a copy of its rows.
"""
