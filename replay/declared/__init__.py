"""Logs of other programs, as the user declares them.

Topics and declarations come in, states go out.
"""
