"""The views of docs/design.md: both engines compute them, as the page says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.page import blocks_of

pytestmark = pytest.mark.matrix
PAGE = Path(__file__).parents[2] / "docs" / "design.md"
SEARCH_CASES = """
[tables.orders]
order_id = "integer"
customer_id = "integer"
status = "text"
[tables.customers]
customer_id = "integer"
name = "text"
[tables.items]
order_id = "integer"
line = "integer"
article = "text"
quantity = "integer"
[[case]]
name = "items are sorted, and a customer is an object"
tables.orders = [{ order_id = 1, customer_id = 7, status = "open" }]
tables.customers = [{ customer_id = 7, name = "Ann" }]
tables.items = [
    { order_id = 1, line = 2, article = "b", quantity = 1 },
    { order_id = 1, line = 1, article = "a", quantity = 3 },
]
rows = [{ order_id = 1, status = "open", customer = { id = 7, name = "Ann" }, items = [
    { line = 1, article = "a", quantity = 3 }, { line = 2, article = "b", quantity = 1 } ] }]
"""
SIZES_CASES = """
[tables.orders]
order_id = "integer"
amount = "numeric(10,2)"
[[case]]
name = "above a hundred"
tables.orders = [{ order_id = 1, amount = 100.01 }, { order_id = 2, amount = 100 }]
rows = [{ order_id = 1, is_large = true }, { order_id = 2, is_large = false }]
"""


@pytest.mark.slow
def test_the_views_of_the_page_are_what_it_says(tmp_path):
    views = tmp_path / "views"
    views.mkdir()
    texts = {each.kind: each.text for each in blocks_of(PAGE) if each.kind in {"sql", "python"}}
    (views / "order_search.sql").write_text(texts["sql"])
    (views / "order_search.cases.toml").write_text(SEARCH_CASES)
    (views / "order_sizes.py").write_text(texts["python"])
    (views / "order_sizes.cases.toml").write_text(SIZES_CASES)
    ran = subprocess.run(
        [sys.executable, "-m", "changelog", "test", "--project", str(tmp_path), "--json"],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert json.loads(ran.stdout)
