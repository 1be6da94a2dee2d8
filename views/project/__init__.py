"""The user's views: files to specifications, in SQL or Python.

A folder comes in, specifications go out, with the tables that they read.
"""
