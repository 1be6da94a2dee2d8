"""Facts about topics from the broker: settings, ends, and the density of records.

A connection comes in, facts of topics go out.
"""
