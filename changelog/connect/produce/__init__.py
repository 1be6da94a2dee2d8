"""Records by HTTP, with the calls of Confluent's REST proxy, version 2.

Requests come in; records on topics, written by transactions, and answers go out.
"""
