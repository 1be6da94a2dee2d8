"""State of a project's line, and the words in which the page shows it.

Looks at servers come in; values, texts and bars go out. Nothing here knows of HTTP.
"""
