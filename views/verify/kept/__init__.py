"""States that were proved, kept so that the next proof begins where the last one ended.

Readings of a topic and a frontier come in, files stay for the next proof, states go out.
"""
