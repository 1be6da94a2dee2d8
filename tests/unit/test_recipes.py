"""Each recipe of docs/recover.md is carried out by a test that asks for it by its title."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.recipes import recipes

CARRIED_OUT = Path(__file__).parents[1] / "integration" / "recover"


def asked_for() -> Iterator[str]:
    for path in sorted(CARRIED_OUT.glob("test_*.py")):
        for each in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(each, ast.Call) and getattr(each.func, "id", "") == "recipe":
                (title,) = each.args
                assert isinstance(title, ast.Constant), f"{path.name} asks for no title"
                yield str(title.value)


def test_each_recipe_is_carried_out_by_a_test() -> None:
    assert len(recipes()) >= 30
    assert sorted({*recipes()} - {*asked_for()}) == []


def test_each_recipe_says_what_is_seen_and_what_to_run() -> None:
    assert [each.title for each in recipes().values() if not (each.sees and each.commands)] == []
