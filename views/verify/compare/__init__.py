"""What must be there against what is there.

Two tables come in, differences and a report go out.
"""
