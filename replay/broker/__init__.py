"""What the broker says: topics, their settings and ends, how dense their records lie.

A connection comes in, facts of topics go out.
"""
