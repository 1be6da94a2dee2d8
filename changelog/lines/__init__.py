"""Records of any topic as lines, read and written by hand.

A topic and a form come in, lines go out; and the way back. The commands import it.
"""
