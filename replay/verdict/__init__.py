"""Whether the log can still give a state exactly, and until when. Mostly pure.

Frontier and facts of topics come in, a verdict goes out.
"""
