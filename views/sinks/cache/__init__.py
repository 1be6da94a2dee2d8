"""Views as keys and values of a cache, with a pointer to the served generation.

Rows come in; an entry for each row goes out, whose key has the generation in it.
"""
