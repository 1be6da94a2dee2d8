"""Views as Delta tables: generations, commits, deletion vectors.

Each generation is a table; readers open a stable one, which lists the files of the served one.
"""
