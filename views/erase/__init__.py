"""The command `changelog erase`: rows of some keys leave all that is kept, with a certificate.

The keys of a table come in, a certificate goes out that says where was looked, and how.
"""
