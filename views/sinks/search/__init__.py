"""Search indexes behind an alias.

Documents come in, an index behind an alias goes out.
"""
