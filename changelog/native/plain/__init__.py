"""The native part without C: the same classes in Python, by the same rules, slower.

The same values come in as on the other way, and the same go out. The modules of changelog/native
alone may import it, where there is no library or none is wanted; the tests hold C to it.
"""
