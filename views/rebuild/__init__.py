"""A run: plan, build, certify, switch; again and again, and back.

Specifications and a log come in, published generations go out. The commands import it.
"""
