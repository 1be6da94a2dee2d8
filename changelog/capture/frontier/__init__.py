"""Where a frontier may stand, and how it is written.

Progress of the stream comes in; frontiers go out, and the LSN that PostgreSQL may forget.
"""
