"""The HTTP server: its socket, who may ask, and what other packages serve.

Tokens, hosts and paths come in; who is let in, and to which application, goes out.
"""
