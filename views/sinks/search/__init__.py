"""Views as search indexes, which readers open by an alias.

Each generation is an index; the alias points to the served one.
"""
