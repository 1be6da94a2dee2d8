"""Key and value behind a pointer.

Rows come in, keys under a generation go out.
"""
