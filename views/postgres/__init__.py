"""Translates views in PostgreSQL's SQL to Spark's, or refuses them. Pure.

A query under the header `dialect: postgres` and the types of its tables' columns come in; a query
in Spark's SQL with the same result goes out, or the place of a part without a known equal.
"""
