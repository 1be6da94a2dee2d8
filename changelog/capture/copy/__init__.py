"""Copies tables while the stream goes on.

Tables come in, their rows go out in chunks, with what is left to do.
"""
