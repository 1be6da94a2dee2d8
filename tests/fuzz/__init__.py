"""Hostile bytes for each function in C that reads what comes from outside.

`make fuzz` (ARGS='--seed 7 --seconds 600'): inputs of the corpus, changed at random from a seed, go
through C under the sanitizers and through Python, and both have to say the same. What fails is
printed as a line to be added to `tests/fuzz/corpus`.
"""
