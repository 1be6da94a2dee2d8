"""Pinned downloads: fetched once, checked against their hash, unpacked.

The lock of artifacts comes in, folders with programs go out. The servers may import it.
"""
