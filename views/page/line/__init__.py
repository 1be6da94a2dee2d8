"""State of a project's line, and its texts and charts for the page.

Answers of servers come in; values, texts and charts go out. Nothing here depends on HTTP.
"""
