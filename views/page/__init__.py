"""The web page of `changelog serve`: the line from source to views, and actions on views.

Requests come in, HTML goes out; threads of its own ask the servers for the state that it shows.
"""
