"""The capture process: the only package that joins source to sink."""
