"""Write artifacts.lock anew: fetch every artifact by name and record what arrived.

Run it after changing changelog/stack/download/artifacts.py and review the difference: it trusts the
repository that answers now, everybody else then trusts the lock file.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from changelog.stack.download import jre
from changelog.stack.download.artifacts import LOCK_NAME, LOCKED, Pin, format_lock
from changelog.stack.download.fetch import sha256_of
from changelog.stack.download.ivy import Ivy

_LOCK = Path(__file__).resolve().parents[1] / "changelog" / "stack" / "download" / LOCK_NAME


def main() -> int:
    """Fetch into a temporary directory and write the lock file."""
    with tempfile.TemporaryDirectory() as directory:
        ivy = Ivy(java=jre.bare_java(), work=Path(directory))
        said = ivy.fetch(LOCKED, on_poll=lambda: None)
        absent = [str(each) for each in LOCKED if not ivy.file(each).is_file()]
        if absent:
            print(said)
            print("not fetched:", ", ".join(absent))
            return 1
        files = {each: ivy.file(each) for each in LOCKED}
        pins = {
            str(each): Pin(sha256_of(file), file.stat().st_size) for each, file in files.items()
        }
    _LOCK.write_text(format_lock(pins), "utf-8")
    print(f"{len(pins)} artifacts, {sum(pin.size_bytes for pin in pins.values()):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
