"""PostgreSQL's SQL as the language of a view: each part of it in Spark's SQL, or refused. Pure.

A text under the header `dialect: postgres` and the types of its tables' columns come in; a text of
Spark's SQL that means the same goes out, or a refusal by name and place.
"""
