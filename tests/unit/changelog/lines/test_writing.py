"""What is known of an input before it ends: `changelog.lines.writing`."""

from __future__ import annotations

import os

from changelog.lines.writing import part_read


def test_of_a_file_it_is_known_how_far_it_is_read(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"0123456789")
    with path.open("rb", buffering=0) as file:
        assert part_read(file.fileno()) is None
        file.read(4)
        assert part_read(file.fileno()) == 0.4
        file.read()
        assert part_read(file.fileno()) == 1.0


def test_of_a_pipe_it_is_not():
    come, go = os.pipe()
    try:
        os.write(go, b"0123456789")
        os.read(come, 4)
        assert part_read(come) is None
    finally:
        os.close(come)
        os.close(go)
