"""What every request meets: the socket, who may ask, and what others serve beside the connectors.

Tokens, hosts and paths come in; who is let in, and to which application, goes out.
"""
