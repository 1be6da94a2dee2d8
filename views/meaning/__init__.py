"""Rewrites views so that the engines compare values as PostgreSQL does, or refuses them.

A view and the types of its tables' columns come in; the view goes out as the engines must compute
it. Nothing is read.
"""
