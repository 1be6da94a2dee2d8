"""The loop: attempts that follow each other, one session, its stream.

Settings come in, a log goes out. The command imports it.
"""
