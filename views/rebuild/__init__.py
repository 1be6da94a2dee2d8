"""A run: plan, build, certify, switch; refreshes, rollbacks, again and again.

Specifications and a log come in, published generations go out. The commands import it.
"""
