"""A log of ours from cut to states.

A frontier comes in, states go out.
"""
