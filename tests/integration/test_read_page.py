"""docs/read-a-view.md: each of its readers, in its language, sees what the page shows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from changelog.stack.servers.postgres import bin_dir
from tests.support.captured_project import captured_database
from tests.support.page import Block, blocks_of, missing, printed, script_of
from views import Project

pytestmark = pytest.mark.matrix
PAGE = Path(__file__).parents[2] / "docs" / "read-a-view.md"
VIEW = "orders_by_customer"
TABLES = """
CREATE TABLE orders (
    id int PRIMARY KEY, customer text, status text, amount numeric(10,2), ordered date);
INSERT INTO orders VALUES
    (1, 'Ann', 'open', 19.90, '2024-02-28'), (2, 'Ann', 'open', 5.00, '2024-02-29'),
    (3, 'Ann', 'sent', 5.00, '2024-01-31'), (4, 'Bo', 'open', 7.25, NULL)
"""


@pytest.fixture(scope="module")
def place(stack, spark, tmp_path_factory):
    """A folder to run the page in, and its environment."""
    folder, endpoints = tmp_path_factory.mktemp("read"), stack.endpoints()
    with (
        captured_database(stack, folder, TABLES) as (project, _),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("CHANGELOG_SINKS_POSTGRES_URL", project.dsn)
        query = next(block for block in blocks_of(PAGE) if block.kind == "sql")
        project.view(f"{VIEW}.sql", query.text)
        view = Project.open(project.root).view(VIEW)
        view.rebuild()
        path = [str(Path(sys.executable).parent), str(bin_dir()), os.environ["PATH"]]
        yield (
            folder,
            {
                **os.environ,
                "PATH": os.pathsep.join(path),
                "SEARCH": str(endpoints.search),
                "CACHE": str(endpoints.cache),
                "WAREHOUSE": str(project.warehouse),
                "VIEWS": project.dsn,
            },
        )
        from changelog.config import load_project
        from views.operate.teardown import look

        # Its sinks are shared with other tests.
        found = look(load_project(project.root))
        found.carry_out(lambda part: part.kind == "views")
        assert found.findings.exit_code == 0


def seen(place, kinds: set[str]) -> dict[str, list[str]]:
    """Return the lines that blocks of some kinds should print and do not, by their text."""
    folder, environment = place
    blocks = [each for each in blocks_of(PAGE) if each.kind in kinds and not each.why_not]
    assert all(each.prints for each in blocks)
    ran = subprocess.run(
        ["bash"], input=script_of(blocks), capture_output=True, text=True, check=False,
        cwd=folder, env=environment, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    output = printed(ran.stdout)
    return {
        f"{block.text}\n{output[number]}": lacks
        for number, block in enumerate(blocks)
        if (lacks := [*missing(block.prints, output[number])])
    }


def test_shell_python_and_sql_see_what_the_page_shows(place):
    assert seen(place, {"sh", "python"}) == {}


def test_the_twin_sees_a_wrong_value(place):
    folder, environment = place
    (block,) = (each for each in blocks_of(PAGE) if "psql" in each.text)
    wrong = Block(block.kind, block.text, "", ("open|24.91",))
    ran = subprocess.run(
        ["bash"], input=script_of([wrong]), capture_output=True, text=True, check=True,
        cwd=folder, env=environment, timeout=120,
    )  # fmt: skip
    assert list(missing(wrong.prints, printed(ran.stdout)[0])) == ["open|24.91"]


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node on this machine")
def test_javascript_sees_what_the_page_shows(place):
    assert seen(place, {"js"}) == {}


def has_compiler() -> bool:
    java = shutil.which("java")
    if java is None:
        return False
    listed = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=False)
    return "jdk.compiler" in listed.stdout


@pytest.mark.root
@pytest.mark.skipif(not has_compiler(), reason="no Java with a compiler on this machine")
def test_java_sees_what_the_page_shows(place):
    assert seen(place, {"java"}) == {}
