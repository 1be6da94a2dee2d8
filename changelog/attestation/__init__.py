"""Statements that others can check: canonical bytes with a checksum, envelopes, files.

A predicate comes in, the bytes of a file go out; and back, where each changed byte is noticed.
"""
