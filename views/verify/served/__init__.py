"""Read back what each kind of sink serves.

An address comes in, rows go out.
"""
