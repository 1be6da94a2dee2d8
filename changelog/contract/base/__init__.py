"""The words of the contract: errors, LSNs, positions, headers, secrets, connections.

Text and bytes come in, small values go out. Everybody may import them.
"""
