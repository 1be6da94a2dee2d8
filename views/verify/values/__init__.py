"""Values and names as the verifier sees them: types, canonical text, faults.

Values come in, their one form goes out.
"""
