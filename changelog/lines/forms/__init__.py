"""Records to lines, and lines to records. Pure.

Records and templates come in, bytes go out; and the way back. The rest of `changelog.lines` may
import it.
"""
