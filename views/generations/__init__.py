"""Generations of a view: their states and history, what is served, how readers move.

Sealed generations come in, the one that serves goes out.
"""
