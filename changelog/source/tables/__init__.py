"""Tables: catalogue, publication, filters, and what changes there without a word in the stream.

Patterns come in; relations, and what a publication sends of them, go out.
"""
