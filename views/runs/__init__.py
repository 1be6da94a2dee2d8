"""Runs that nobody watches: how long they may take, who hears of them, and when they begin.

What became of a run, and the declared schedules, come in; a command, a webhook, metrics, and
processes of `rebuild-view` go out. Only the commands import it.
"""
