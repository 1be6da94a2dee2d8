"""States that are kept, so that the next read begins where the last one ended.

Folded records come in; at the next read states go out, with what has been added since.
"""
