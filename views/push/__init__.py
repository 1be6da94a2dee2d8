"""Push the changes of a view to a receiver of webhooks: once at least, in order for each key.

A view's topic comes in; signed requests and the place that they have come to go out. The command
`changelog push` alone imports it.
"""
