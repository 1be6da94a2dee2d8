"""States that were proved, kept so that the next proof begins where the last one ended.

Records of a topic up to a frontier come in, files are stored for the next proof, states go out.
"""
