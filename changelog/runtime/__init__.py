"""Shared by all processes of ours: errors to exit codes, options, children, TLS.

A command comes in, one line and an exit code go out. Every command may import it.
"""
