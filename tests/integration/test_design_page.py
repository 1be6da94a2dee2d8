"""The views of docs/design.md: both engines compute them, as the page says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.captured_project import captured_database
from tests.support.page import blocks_of
from tests.support.page_lines import block_of, commands_of, reader_of

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


TABLES = """
CREATE TABLE orders (order_id integer PRIMARY KEY, customer_id integer, status text);
CREATE TABLE customers (customer_id integer PRIMARY KEY, name text);
CREATE TABLE items (
    order_id integer, line integer, article text, quantity integer, PRIMARY KEY (order_id, line));
"""


def test_the_command_of_the_page_plans_its_view(stack, tmp_path):
    with captured_database(stack, tmp_path, TABLES) as (project, name):
        project.view("order_search.sql", block_of(PAGE, "sql", "-- key: order_id").text)
        shell = reader_of(tmp_path, stack.endpoints(), project.dsn, name)
        for command in commands_of(PAGE):
            assert "exact" in shell.run(f"{command} 2>&1")
