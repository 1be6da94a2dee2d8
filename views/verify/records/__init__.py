"""The verifier's own reading of topics: all records, and the last of each key.

Topics and a frontier come in, survivors in batches go out.
"""
