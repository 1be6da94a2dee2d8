"""A page of `changelog serve`: the line from source to views, and what can be done about it.

Requests come in, HTML goes out; what it shows is looked for beside the requests.
"""
