"""What the tests of recipes share: a project with the names of docs/recover.md."""

import pytest

from tests.integration.recover.orders import orders_at
from tests.support.captured_project import run_here
from tests.support.recovering import Recovering, typed_here
from tests.support.services import own_broker


@pytest.fixture
def recovering(spark, capsys, monkeypatch, kafka, registry, prefix, tmp_path):
    """Make a project over a database, by default on the servers of the run."""
    made = []

    def make(dsn, **named):
        servers = {"kafka": kafka, "registry": registry, "prefix": prefix, "folder": tmp_path}
        typed = typed_here(capsys, monkeypatch)
        line = Recovering(typed=typed, dsn=dsn, **{**servers, **named})
        made.append(line)
        return line

    yield make
    for each in made:
        each.kill()


@pytest.fixture
def line(recovering, dsn):
    """Make a project whose tables are on the log and whose view is built."""
    made = recovering(dsn)
    made.begins()
    return made


@pytest.fixture
def here(capsys, monkeypatch, spark, tmp_path):
    """Run `rebuild-view` in this process and in the folder of `orders`."""
    root = tmp_path / "project"
    root.mkdir()
    monkeypatch.chdir(root)
    monkeypatch.setenv("COLUMNS", "400")  # what is quoted stands in one line
    return lambda words: run_here(capsys, monkeypatch, ["rebuild-view", *words])


@pytest.fixture
def orders(stack, here, tmp_path):
    """A table on the log that a view is to be made of, on the servers of the run."""
    with orders_at(stack, tmp_path / "project", here) as made:
        yield made


@pytest.fixture
def broker(downloads):
    """A broker that a test may restart."""
    with own_broker() as made:
        yield made


@pytest.fixture
def own_orders(stack, here, broker, tmp_path):
    """The same, whose log is on that broker."""
    with orders_at(stack, tmp_path / "project", here, brokers=broker.url) as made:
        yield made
