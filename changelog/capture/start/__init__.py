"""How an attempt begins: the environment, the decision, what happened while nobody looked.

Settings, slot, log and catalogue come in; a way to begin goes out, or a refusal that says why.
"""
