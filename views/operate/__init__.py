"""Check the whole line from source to sinks: problems, each with its remedy.

A project comes in; findings go out. Only the commands import it.
"""
