"""The meaning of comparisons in PostgreSQL, of each type, and queries that keep it.

A view and the types of its tables' columns come in; the view goes out as the engines have to
compute it, or is refused. Nothing is read.
"""
