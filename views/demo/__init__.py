"""The demo: data, a writer, the whole line.

Nothing comes in, a report goes out. It alone runs capture as a person would.
"""
