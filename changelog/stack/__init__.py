"""Servers of our own, as local processes from pinned downloads.

A folder comes in, endpoints go out. It is a convenience of commands, demo and tests.
"""
