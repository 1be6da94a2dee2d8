"""A view's SQL in DuckDB: translated, typed, evaluated.

A view of Spark comes in, the rows that it must have go out.
"""
