"""One module for each server: how it is made, started, asked and ended.

A folder and a port come in, an endpoint goes out. `stack.py` and tests import them.
"""
