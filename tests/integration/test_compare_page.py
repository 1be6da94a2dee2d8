"""docs/verify-anything.md: its commands print what it says, at a PostgreSQL that is just there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from changelog.stack.servers.postgres import bin_dir
from tests.support.page import blocks_of, missing, printed, script_of
from tests.support.page_lines import address_of

PAGE = Path(__file__).parents[2] / "docs" / "verify-anything.md"


def test_the_page_prints_what_it_says(dsn, tmp_path):
    blocks = [block for block in blocks_of(PAGE) if block.kind == "sh" and not block.why_not]
    assert len(blocks) >= 3
    path = [str(Path(sys.executable).parent), str(bin_dir()), os.environ["PATH"]]
    ran = subprocess.run(
        ["bash"], input=script_of(blocks), capture_output=True, text=True, check=False,
        cwd=tmp_path, timeout=120,
        env={**os.environ, "PATH": os.pathsep.join(path), "SOURCE": address_of(dsn)},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    output = printed(ran.stdout)
    lacking = {
        block.text: (lacks, output[number])
        for number, block in enumerate(blocks)
        if block.prints and (lacks := [*missing(block.prints, output[number])])
    }
    assert lacking == {}
