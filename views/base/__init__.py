"""Settings of views, addresses of what is served, failures in one line, progress.

Values come in and go out. All of views may import it; the verifier takes addresses and progress.
"""
