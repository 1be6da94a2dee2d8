"""The steps of one run: rows, what goes forward, proofs, the move of readers.

Views and the states of their tables come in; generations that are proved and published go out.
"""
