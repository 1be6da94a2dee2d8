"""Certificates of published generations: documents that others can check by themselves.

What a run knows of a generation comes in; a document goes out, and a verdict on one.
"""
