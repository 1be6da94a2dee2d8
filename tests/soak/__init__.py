"""A storm over the whole line, from a seed: `python -m tests.soak --help`, `make soak`."""
