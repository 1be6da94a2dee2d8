"""The native part without C: the same classes in Python, by the same rules, slower.

The same values come in and go out as in C, and tests compare the two. Only modules of
changelog/native may import it.
"""
