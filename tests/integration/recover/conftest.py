"""What the tests of recipes share: a project with the names of docs/recover.md."""

import pytest

from tests.support.recovering import Recovering, typed_here


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
