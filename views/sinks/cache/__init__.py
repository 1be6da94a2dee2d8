"""Views as keys and values of a cache, with a pointer to the served generation.

Each row is an entry whose key has the generation in it.
"""
