"""What a page shows is compared with what was printed, and a difference is seen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.page import blocks_of, missing, printed, script_of

PAGE = """
```sh
echo "one of $((20 + 1)) rows"
echo two
```

```text
one of … rows
│ two │
```

<!-- not run: it would fail -->
```sh
false
```

```python
print(2 + 2)
```

```text
5
```
"""


def test_blocks_run_in_order_and_a_wrong_output_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    blocks = blocks_of(page)
    assert [(each.kind, bool(each.why_not), len(each.prints)) for each in blocks] == [
        ("sh", False, 2), ("sh", True, 0), ("python", False, 1),
    ]  # fmt: skip
    here = str(Path(sys.executable).parent)  # an ordinary user may have no `python` besides
    ran = subprocess.run(
        ["bash"], input=script_of(blocks), capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, "PATH": f"{here}:{os.environ['PATH']}"},
    )  # fmt: skip
    output = printed(ran.stdout)
    assert list(missing(blocks[0].prints, output[0])) == []
    assert list(missing(blocks[2].prints, output[2])) == ["5"]
    assert list(missing(("two", "one"), output[0])) == ["one"], "the order counts"


def test_a_block_that_fails_ends_the_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```sh\nfalse\n```\n```sh\necho never\n```\n", encoding="utf-8")
    ran = subprocess.run(
        ["bash"], input=script_of(blocks_of(page)), capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    assert ran.returncode == 1
    assert "never" not in ran.stdout
