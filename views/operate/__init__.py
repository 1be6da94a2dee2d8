"""The whole line looked at, from source to sinks: what stands in the way, and what mends it.

A project comes in; findings go out. Only the commands import it.
"""
