"""Files that `changelog init` writes.

A folder comes in, a project goes out.
"""
