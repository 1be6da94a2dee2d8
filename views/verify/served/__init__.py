"""What each kind of sink serves, read back.

An address comes in, rows go out.
"""
