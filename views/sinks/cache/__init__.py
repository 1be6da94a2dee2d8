"""Keys and values of a cache, behind a pointer to the generation.

Rows come in, keys under a generation go out.
"""
