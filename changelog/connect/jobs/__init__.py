"""Connectors that are commands of ours, each a child of the worker that has its task.

What a configuration asks for comes in; how the command ended goes out. `changelog.connect` imports
it.
"""
