"""Views as Delta tables: generations, commits, deletion vectors.

Rows come in; a table for each generation goes out, and a stable one that lists the served files.
"""
