"""What every process of ours needs: errors to exit codes, options, children, TLS.

A command comes in, one line and an exit code go out. Every command may import it.
"""
