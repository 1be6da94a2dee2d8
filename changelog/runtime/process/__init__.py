"""Processes: children of ours, servers that fall silent, and Python's search for garbage.

Modules that are run, and connections, come in; children and deadlines go out. Any package
imports it.
"""
