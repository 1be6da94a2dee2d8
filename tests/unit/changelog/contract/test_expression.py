"""Conditions as SQL: what stays one expression, and what gets out of its brackets."""

import pytest

from changelog.contract.base.errors import ConfigurationError
from changelog.contract.base.expression import check_expression


@pytest.mark.parametrize(
    "text",
    [
        "order_id > 0); CREATE TABLE injected(a int); --",
        "order_id > 0), TABLE secrets WHERE (true",
        "a > 0) --",
        "true /* ( */",
        "true -- ",
        "a = ';' ; select 1",
        "a > 0; select 1",
        "(a > 0",
        "(a[1) > 0]",
        "a = 'x",
        'a = "x',
        r"a = 'x\'; b = ' ) --'",
        r"a = E'x\'') , TABLE t WHERE ('1",
        "a = $$)$$",
        "a = $x$ ' $x$) , TABLE t WHERE (b = $x$ ' $x$",
        "a = e'\\' ' ) --'",
        "U&'\\' ) --'",
        "a\x00",
        " ",
    ],
)
def test_what_leaves_its_brackets_is_refused(text):
    with pytest.raises(ConfigurationError, match="is no single condition"):
        check_expression(text, "capture.where.public.t")


@pytest.mark.parametrize(
    "text",
    [
        "amount > 0 AND (state = 'new' OR state IN ('a', 'b'))",
        "name = 'O''Brien' AND note <> ';--/*('",
        r"sku ~ '^\d+$' AND a = E'it\'s )'",
        '"odd ( name" = 1 AND "a""b" > 0',
        "tags[1] = 'x' AND kind = U&'d\\0061t'",
        "a$b > 1 and élan = 2 and a - -1 > 0 and b->>'x' = '1'",
        "n = N'' AND b = B'01' AND x = X'1F'",
        "a / 2 > 1 AND 2 * (b) > 0",
    ],
)
def test_an_expression_is_taken(text):
    check_expression(text, "capture.where.public.t")
