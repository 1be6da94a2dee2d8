"""Connectors that run a command of this program as a child process of the worker.

The settings of a configuration come in; the exit code and output of the command go out.
`changelog.connect` imports it.
"""
