"""The HTTP server: its socket, admission of requests, and handlers of other packages.

Tokens, hosts and paths come in; admission, and the application that answers, go out.
"""
