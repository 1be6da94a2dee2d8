"""Recipes of docs/recover.md for what befalls the source, its slot, the network and the servers."""

import re
from urllib.parse import urlsplit

import httpx
import pytest
from psycopg2.extensions import make_dsn, parse_dsn

from changelog.contract.base.connection import KafkaConnection
from changelog.stack.base.ports import pick
from changelog.stack.servers.postgres import PostgresServer
from tests.support.proxy import Proxy
from tests.support.recipes import recipe
from tests.support.recovering import CUSTOMERS, DEADLINE_S, ORDERS
from tests.support.services import own_broker
from tests.support.standby import pair
from tests.support.wait import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.matrix]

SMALL = {"max_slot_wal_keep_size": "16MB", "max_wal_size": "32MB", "min_wal_size": "32MB"}
WAITS = re.compile("trying again in|waiting for the brokers")


# --- the slot ----------------------------------------------------------------------------------


def test_a_slot_that_was_dropped_or_lost_is_made_anew(recovering, prefix, tmp_path_factory):
    wanted = recipe("The slot is lost or dropped")
    folder = tmp_path_factory.mktemp("source")
    with PostgresServer(
        folder / "pg", pick(), version=18, settings={"fsync": "off", **SMALL}
    ) as server:
        server.create_database(prefix)
        line = recovering(server.database_dsn(prefix))
        line.begins()
        line.change()
        line.query(f"SELECT pg_drop_replication_slot('{prefix}')")
        line.change()
        line.types("changelog status", code=1)
        line.types("rebuild-view --all")
        assert line.served() != line.wanted()
        for command in wanted.commands:
            line.types(command)
        line.is_well()
        line.change()

        def is_lost():
            line.sql(
                "SELECT pg_logical_emit_message(false, 'x', repeat('x', 20000000))", "CHECKPOINT"
            )
            state = f"SELECT wal_status FROM pg_replication_slots WHERE slot_name = '{prefix}'"
            return line.query(state) == [("lost",)]

        wait_until(is_lost, DEADLINE_S, "the slot is lost")
        line.types("changelog status", code=1)
        line.types("rebuild-view --all")
        assert line.served() != line.wanted()
        line.carries_out(wanted)
        assert line.frontier().epoch == 3
        line.is_well()


def test_a_slot_that_was_moved_by_hand_is_dropped_and_the_tables_copied(line):
    wanted = recipe("The slot is moved by hand")
    line.change()
    line.query(f"SELECT pg_replication_slot_advance('{line.prefix}', pg_current_wal_lsn())::text")
    line.change()
    line.types("changelog capture", code=1)
    assert line.served() != line.wanted()
    assert wanted.is_seen_in(line.heard), line.heard
    drop, capture = wanted.commands
    line.types(drop, answer="y\n")
    line.types(capture)
    assert line.frontier().epoch == 2
    line.is_well()


# --- standbys ----------------------------------------------------------------------------------


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


def test_a_failover_to_a_standby_that_lacks_records_or_the_slot_copies_anew(
    captured, servers, prefix
):
    line = captured
    wanted = recipe("It fails over to one that has not")
    line.ends()
    servers.replayed()
    servers.standby.kill()  # nothing reaches it any more
    line.change()
    line.sql("INSERT INTO orders VALUES (400000, 1, 5, 'lost with the primary')")
    line.types("changelog capture --until now")
    servers.primary.kill()
    servers.standby.start()
    servers.standby.promote()
    line.dsn = servers.standby.database_dsn(prefix)
    line.change()
    line.types("rebuild-view --all")
    assert 400000 in [key for key, *_ in line.served()]
    for command in wanted.commands:
        line.types(command)
    assert line.served() == line.wanted()
    assert line.frontier().epoch == 2
    line.is_well()
    # The same where it has the records, and nobody has told it of the slot.
    line.query(f"SELECT pg_drop_replication_slot('{prefix}')")
    line.change()
    line.types(wanted.commands[0])
    line.carries_out(wanted)
    assert line.frontier().epoch == 3
    line.is_well()


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


# --- servers and networks ----------------------------------------------------------------------


def test_a_broker_and_a_registry_that_were_away_are_waited_for(
    recovering, dsn, registry, prefix, downloads
):
    wanted = recipe("Broker or registry away")
    port = urlsplit(registry.url).port
    assert port is not None
    with own_broker() as broker, Proxy(pick(), port) as proxy:
        line = recovering(
            dsn,
            kafka=KafkaConnection(brokers=f"127.0.0.1:{broker.port}"),
            url=registry.url.replace(f":{port}", f":{proxy.port}"),
        )
        line.begins()
        line.launches("--metrics-port", "0")
        line.catches_up()
        (address,) = re.findall(r"metrics at (\S+)", line.said())
        broker.kill()
        line.change()
        wait_until(lambda: WAITS.search(line.said()), DEADLINE_S, "it waits")
        is_away(line, wanted)
        broker.start()
        line.catches_up()
        is_here(line, wanted)
        proxy.refuse()
        before = len(line.said())
        line.sql("ALTER TABLE orders ADD extra integer")
        line.change()
        wait_until(lambda: "trying again in" in line.said()[before:], DEADLINE_S, "it waits")
        is_away(line, wanted)
        line.heard += httpx.get(address).text
        proxy.heal()
        line.catches_up()
        line.hears()
        assert wanted.is_seen_in(line.heard), line.heard
        is_here(line, wanted)
        line.is_well()
        line.ends()


def is_away(line, wanted):
    """The doctor finds a server that does not answer, and nothing of the log is served."""
    assert line.served() != line.wanted()
    for command in wanted.commands:
        line.types(command, code=1)


def is_here(line, wanted):
    for command in wanted.commands:
        line.types(command)


def test_a_network_that_swallows_packets_is_noticed_and_waited_out(recovering, dsn, detour, stack):
    wanted = recipe("The network swallows packets")
    with (
        Proxy(detour.proxy, detour.listener) as to_brokers,
        Proxy(pick(), int(parse_dsn(dsn)["port"])) as to_source,
    ):
        line = recovering(dsn, brokers=f"127.0.0.1:{detour.proxy}")
        line.begins()
        line.launches()
        line.catches_up()
        to_brokers.hold()
        line.change()
        wait_until(lambda: WAITS.search(line.said()), DEADLINE_S, "it waits")
        is_away(line, wanted)
        to_brokers.heal()
        line.catches_up()
        line.hears()
        is_here(line, wanted)
        line.ends()
        # The other side of the line; on this machine only an answer that does not come shows it.
        line.read_from(make_dsn(dsn, port=to_source.port, options="-c wal_sender_timeout=5s"))
        line.begin(hasty=True)
        line.catches_up()
        to_source.hold()
        line.change()
        wait_until(lambda: "trying again in" in line.said(), DEADLINE_S, "it waits")
        is_away(line, wanted)
        to_source.heal()
        line.catches_up()
        line.hears()
        assert wanted.is_seen_in(line.heard), line.heard
        is_here(line, wanted)
        line.is_well()
        line.ends()
