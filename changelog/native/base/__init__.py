"""Types, errors and C declarations that both ways of the native part share.

Nothing comes in. Plain types and the header as cffi reads it go out to the two ways beside this
and to all who call them. Imports no library that was compiled.
"""
