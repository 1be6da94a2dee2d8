"""Recipes of docs/recover.md for what befalls the source."""

import re

import pytest

from tests.support.recipes import recipe
from tests.support.recovering import CUSTOMERS, ORDERS
from tests.support.standby import pair

pytestmark = [pytest.mark.slow, pytest.mark.matrix]


@pytest.fixture
def servers():
    with pair(18) as made:
        yield made


@pytest.fixture
def captured(recovering, servers, prefix):
    """A capture that runs, reads whichever of the two is the primary, and has a slot on both."""
    servers.primary.create_database(prefix)
    made = recovering(servers.primary.database_dsn(prefix))
    made.read_from(servers.either(prefix))
    made.set(failover_slot=True)
    made.begins()
    made.launches()  # a slot that stands still gives its copy no place to begin
    made.catches_up()
    servers.followed(prefix)
    return made


def test_a_failover_to_a_standby_that_has_all_goes_on_by_itself(captured, servers, prefix):
    line = captured
    wanted = recipe(
        "The primary fails over to a standby that has all that the log holds, and the slot"
    )
    line.change()
    line.catches_up()
    servers.replayed()
    line.dsn = servers.fail_over(prefix)
    line.change()
    line.catches_up()
    line.hears()
    line.carries_out(wanted)
    assert (line.frontier().epoch, line.frontier().timeline) == (1, 2)
    line.is_well()
    line.ends()


def test_a_standby_that_is_captured_and_promoted_is_captured_on(recovering, servers, prefix):
    wanted = recipe("A standby that is captured is promoted")
    servers.primary.create_database(prefix)
    line = recovering(servers.primary.database_dsn(prefix))
    there = servers.standby.database_dsn(prefix)
    line.sql(CUSTOMERS, ORDERS)
    servers.replayed()
    line.read_from(there, f'primary = "{line.dsn}"')
    line.builds()
    line.launches()
    line.change()
    line.catches_up()
    assert line.frontier().timeline == 1
    servers.primary.stop()
    servers.standby.promote()
    line.dsn = there
    line.change()
    line.catches_up()
    line.hears()
    line.carries_out(wanted)
    assert (line.frontier().epoch, line.frontier().timeline) == (1, 2)
    line.ends()
    line.read_from(there)
    line.settings.write_text(re.sub(r"(?m)^primary = .*\n", "", line.settings.read_text()))
    line.change()
    line.types("changelog capture")
    line.is_well()
