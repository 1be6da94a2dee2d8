"""Run a command on a terminal of 60 columns without colours: `python -m tests.support.narrow ...`.

Prints what does not fit there: lines of drawings that are wider, and sequences that colour. Ends
with the command's exit code, or with 99 where something was found. Lines of plain text are left to
the terminal, which breaks them.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

from rich.cells import cell_len

COLUMNS, ROWS = 60, 40
_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;\d+)*m")
_DRAWN = re.compile(r"[─-╿]")
FOUND = 99


def shown(words: list[str]) -> tuple[str, int]:
    """Return all that a command writes on the terminal, and its exit code."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    environment |= {"NO_COLOR": "1", "TERM": "xterm-256color"}
    with subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as running:
        os.close(theirs)
        raw = bytearray()
        while True:
            try:
                some = os.read(ours, 65_536)
            except OSError:  # nobody has the other end any more
                break
            if not some:
                break
            raw += some
    os.close(ours)
    return raw.decode(), running.returncode


def misfits(text: str) -> list[str]:
    """Return what does not fit: of lines that are drawn again, each drawing counts."""
    found = [f"a colour: {each!r}" for each in _COLOUR.findall(text)]
    lines = _SEQUENCE.sub("", text).replace("\r", "\n").splitlines()
    drawn = [line for line in lines if _DRAWN.search(line)]
    return found + [
        f"{cell_len(line)} columns: {line}" for line in drawn if cell_len(line) > COLUMNS
    ]


def main() -> int:
    """Run the command of the command line."""
    text, code = shown(sys.argv[1:])
    if found := misfits(text):
        sys.stdout.write("\n".join([f"{' '.join(sys.argv[1:])}:", *found, ""]))
        return FOUND
    return code


if __name__ == "__main__":
    sys.exit(main())
