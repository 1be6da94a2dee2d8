"""The native part in C: the library, and a typed class for each thing that it does.

Python values come in, calls of the library and its errors as exceptions go out. Only modules of
changelog/native may import it, and only if there is a library.
"""
