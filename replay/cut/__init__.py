"""Choose the frontier to read, now or as of an earlier moment.

What is asked for comes in, a frontier that may be read goes out.
"""
