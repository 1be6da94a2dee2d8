"""Delta tables: generations, commits, deletion vectors.

Rows come in, a table that readers find under one name goes out.
"""
