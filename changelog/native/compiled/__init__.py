"""The native part in C: the library, and a typed class for each thing that it does.

Python values come in, calls of the library and its errors as exceptions go out. The modules of
changelog/native alone may import it, where the library is there.
"""
