"""Topics to the last record of each key, in tasks.

Ranges of offsets come in, survivors go out.
"""
