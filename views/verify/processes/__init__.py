"""Helpers of the verifier, one a core, launchers of tasks, and its scratch database.

Jobs come in, their results go out.
"""
