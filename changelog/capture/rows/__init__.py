"""A relation's way to bytes: rules, shapes, codecs, versions of its schema.

A relation comes in, the codec of its rows goes out. What stands behind it in capture may import it.
"""
