"""Helpers of the verifier, one a core, and its scratch database.

Jobs come in, their results go out.
"""
