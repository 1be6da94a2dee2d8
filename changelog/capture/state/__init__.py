"""State of an attempt and of each table: start state, ledger, report, policy, lag.

Facts come in, decisions about one table go out. All of capture may import it.
"""
