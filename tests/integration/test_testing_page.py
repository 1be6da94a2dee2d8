"""docs/testing.md: its commands, on a view whose cases are the page's."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.page_lines import Shell, block_of, commands_of, plain

pytestmark = pytest.mark.matrix
PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
VIEW = """-- key: customer_id
SELECT c.customer_id, c.name, count(o.order_id) AS orders, sum(o.amount) AS amount
FROM customers c LEFT JOIN sales.orders o
    ON o.customer_id = c.customer_id AND (o.ordered IS NULL OR o.ordered > DATE '2020-01-01')
GROUP BY c.customer_id, c.name
"""


@pytest.mark.slow
def test_cases_of_the_page_pass_and_a_wrong_one_is_told(downloads, tmp_path):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shell = Shell(tmp_path, {**os.environ, "PATH": path, "COLUMNS": "140"})
    views = tmp_path / "views"
    views.mkdir()
    (views / "orders_per_customer.sql").write_text(VIEW)
    cases = views / "orders_per_customer.cases.toml"
    text = block_of(PAGE, "toml", "[tables.customers]").text
    begin, people, programs = map(plain, commands_of(PAGE))
    shell.run(begin)
    assert "[tables.customers]" in cases.read_text()
    cases.write_text(text)
    assert "who ordered nothing is there" in shell.run(people)
    told = json.loads(shell.run(programs))
    assert "amounts are summed" in json.dumps(told)
    cases.write_text(text.replace("amount = 24.90", "amount = 24.91"))
    assert "24.91" in shell.run(f"{people} || test $? = 1")
