"""Rewrites views so that the engines compare values as PostgreSQL does, or refuses them.

It is given a view and the types of its tables' columns, and reads nothing.
"""
