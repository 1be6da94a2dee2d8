"""Translates views in PostgreSQL's SQL to Spark's, or refuses them. Pure.

It is given a query under the header `dialect: postgres` and the types of its tables' columns. It
returns a query of Spark's with the same result, or names the part that has no known equal.
"""
