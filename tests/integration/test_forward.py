"""Followed views go forward by the keys that changed: search, cache and tables, proved before."""

import dataclasses
import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from changelog.config import load_project
from changelog.contract.base.errors import RefutedError
from changelog.runtime.findings import Findings, Level
from replay.store import increment
from replay.store.stops import Stops
from replay.store.stored import StoredRecords
from tests.support.matrix import first
from tests.support.shop import generations, opened_shop
from tests.support.sql import execute
from views.base.config import RowsSource, VerifyMode
from views.generations.history import GenerationHistory, as_served
from views.operate.served import look_at_views
from views.project.catalog import Catalog
from views.rebuild import sealing
from views.rebuild.local.by_spark import BySpark
from views.rebuild.local.engine import LocalQuery
from views.rebuild.local.related import Walk
from views.rebuild.one_view.delta import delta_from_spark
from views.rebuild.plan.dialect import UnknownValueError
from views.rebuild.plan.plan import store_of
from views.rebuild.resident import Resident
from views.runs.recent import is_recent
from views.sinks.base import UnavailableSinkError
from views.sinks.postgres.sink import PostgresSink

CHANGES = [
    """DELETE FROM lines WHERE order_id = 201; DELETE FROM orders WHERE id > 200;
    UPDATE orders SET amount = amount + 77.70 WHERE id IN (7, 8);
    INSERT INTO orders VALUES (201, 21, 5, NULL), (202, 1, 8, now());
    INSERT INTO lines VALUES (201, 1, 'new')""",
    # A parent moves: the same order under another customer, and another key of the entry.
    """DELETE FROM lines WHERE order_id % 9 = 0; DELETE FROM orders WHERE id = 202;
    UPDATE orders SET customer_id = 3 - customer_id % 2 WHERE id = 20""",
    # A parent is renamed: all that show it change. A key changes, a customer's last orders go,
    # and a row comes and goes between two rounds.
    """UPDATE customers SET name = name || '!' WHERE id = 3;
    UPDATE orders SET id = id + 300 WHERE id IN (60, 61);
    DELETE FROM orders WHERE customer_id = 5;
    INSERT INTO orders VALUES (900, 1, 9, NULL); DELETE FROM orders WHERE id = 900""",
]


def origins(outcome):
    return [result.origin for result in outcome.results]


@pytest.fixture(scope="module")
def shop(stack, spark, tmp_path_factory):
    with opened_shop(stack, tmp_path_factory.mktemp("forward") / "project") as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("by", first(1, ["datafusion", "spark", "all rows"]))
def test_readers_see_each_change_in_the_generation_that_serves(shop, monkeypatch, by):
    shop.is_right()
    asked: list = []
    for kind in (LocalQuery, BySpark):
        monkeypatch.setattr(kind, "rows", noted(kind, asked))
    if by == "spark":
        monkeypatch.setattr(LocalQuery, "__init__", not_known)
    if by == "all rows":
        follow_changes(shop, shop.round)
    else:
        with shop.followed() as follower:
            follow_changes(shop, follower.round)
            # Behind these rounds all that is served is compared, too.
            shop.change("UPDATE orders SET amount = amount + 1 WHERE id = 76")
            monkeypatch.setattr(follower, "_looked", -math.inf)
            outcome = follower.round()
            assert outcome.error is None, outcome.error
            served = [
                report
                for result in outcome.results
                for place, report in result.reports.items()
                if place != "changes"
            ]
            assert served
            assert all(each.rows_served > 10 for each in served), "one key has changed"
            assert follower.is_here
    wanted = {"datafusion": {LocalQuery}, "spark": {BySpark}, "all rows": set()}
    assert set(asked) == wanted[by]
    # A rebuild takes over, and a follower goes on from there.
    whole = shop.round(forward=False, source=RowsSource.START, verify=VerifyMode.FULL)
    assert whole.error is None
    shop.change("UPDATE orders SET amount = amount + 1 WHERE id = 77")
    outcome = shop.round()
    assert generations(outcome) == generations(whole)
    shop.is_right()


def noted(kind, asked):
    sound = kind.rows

    def rows(self, records):
        if any(records.values()):
            asked.append(kind)
        return sound(self, records)

    return rows


def not_known(*_):
    raise UnknownValueError("nothing is known here")


def follow_changes(shop, make_round):
    outcome = shop.round()
    serving = generations(outcome)
    for statements in CHANGES:
        shop.change(statements)
        outcome = make_round()
        assert outcome.error is None, outcome.error
        assert all(each.startswith(("forward", "refresh: unchanged")) for each in origins(outcome))
        assert any(each.startswith("forward") for each in origins(outcome))
        assert generations(outcome) == serving
        assert all(
            result.verified for result in outcome.results if result.origin.startswith("forward")
        )
        shop.is_right()


@pytest.mark.matrix
def test_a_wrong_row_is_refuted_before_any_reader_has_it(shop, monkeypatch):
    sound = delta_from_spark

    def off_by_a_cent(*arguments):
        delta = sound(*arguments)
        if "amount" not in delta.schema.fieldNames():
            return delta
        place = delta.table.schema.get_field_index("amount")
        field = delta.table.schema.field(place)
        wrong = [v if v is None else v + Decimal("0.01") for v in delta.table["amount"].to_pylist()]
        table = delta.table.set_column(place, field, pa.array(wrong, field.type))
        return dataclasses.replace(delta, table=table)

    before = shop.entries(), shop.totals(), shop.documents()
    shop.change("UPDATE orders SET amount = amount + 50 WHERE id = 11")
    with monkeypatch.context() as patched:
        patched.setattr("views.rebuild.run.forward.delta_from_spark", off_by_a_cent)
        outcome = shop.round()
    assert all(isinstance(result.error, RefutedError) for result in outcome.results)
    assert all(result.mismatches == 1 for result in outcome.results)
    assert (shop.entries(), shop.totals(), shop.documents()) == before
    with pytest.raises(AssertionError):
        shop.is_right()
    assert shop.round().error is None
    shop.is_right()


@pytest.mark.matrix
def test_a_key_that_a_delta_does_not_name_is_found_when_all_is_compared(shop, monkeypatch):
    shop.change("UPDATE orders SET customer_id = 4 + customer_id % 2 WHERE id = 20")
    with monkeypatch.context() as patched:
        # The defect: only what rows are now is asked, not what they were.
        patched.setattr(StoredRecords, "before", lambda self, position, keys: keys.where("false"))
        assert shop.round().error is None
        with pytest.raises(AssertionError):
            shop.is_right()
        shop.change("UPDATE orders SET amount = amount + 51 WHERE id = 11")
        outcome = shop.round(looks=True)
    wrong = [result for result in outcome.results if isinstance(result.error, RefutedError)]
    assert wrong, "the comparison of all finds what the delta left out"
    history = GenerationHistory(shop.settings().warehouse)
    for result in wrong:
        assert "where readers see it" in str(result.error)
        last = as_served(history.rows([result.view]))
        assert last is not None
        assert (last.generation, last.state) == (result.generation, "refuted")
    assert shop.round(forward=False, source=RowsSource.START, verify=VerifyMode.FULL).error is None
    shop.is_right()


@pytest.mark.matrix
def test_more_keys_than_go_forward_make_a_generation(shop, monkeypatch, caplog):
    before = generations(shop.round())
    monkeypatch.setattr("views.rebuild.run.forward.MOST_KEYS", 5)
    shop.change("UPDATE orders SET amount = amount + 1 WHERE id BETWEEN 100 AND 140")
    outcome = shop.round()
    assert outcome.error is None
    assert all("more than go forward at once" in each for each in origins(outcome))
    assert re.search(r"is computed whole: \d+ keys are affected, more than go forward", caplog.text)
    assert all(number > before[view] for view, number in generations(outcome).items())
    shop.is_right()


def in_cents(rows):
    if "amount" not in rows.schema.names:
        return rows
    place = rows.schema.get_field_index("amount")
    field = rows.schema.field(place)
    wrong = [v if v is None else v + Decimal("0.01") for v in rows["amount"].to_pylist()]
    return rows.set_column(place, field, pa.array(wrong, field.type))


@pytest.mark.matrix
def test_a_row_that_is_computed_wrongly_here_is_refuted_and_spark_computes_it(shop, monkeypatch):
    sound = LocalQuery.rows
    with shop.followed() as follower:
        monkeypatch.setattr(LocalQuery, "rows", lambda self, some: in_cents(sound(self, some)))
        shop.change("UPDATE orders SET amount = amount + 50 WHERE id = 12")
        outcome = follower.round()
        assert outcome.error is None
        assert all("refresh" in each or "forward" in each for each in origins(outcome))
        shop.is_right()
        assert not follower.is_here, "what was refuted once computes no more"


@pytest.mark.matrix
def test_twin_a_row_that_is_computed_wrongly_here_is_seen_where_nobody_proves(shop, monkeypatch):
    sound = LocalQuery.rows
    with shop.followed(verify=VerifyMode.NONE) as follower, monkeypatch.context() as patched:
        patched.setattr(LocalQuery, "rows", lambda self, some: in_cents(sound(self, some)))
        shop.change("UPDATE orders SET amount = amount + 50 WHERE id = 13")
        assert follower.round().error is None
        with pytest.raises(AssertionError):
            shop.is_right()
    shop.change("UPDATE orders SET amount = amount + 50 WHERE id = 13")
    assert shop.round().error is None
    shop.is_right()


@pytest.mark.matrix
def test_a_record_that_one_reader_skips_is_missed_by_the_other(shop, monkeypatch):
    sound = increment._folded

    def skipping(*arguments, **more):
        return list(sound(*arguments, **more))[1:]

    with shop.followed() as follower:
        with monkeypatch.context() as patched:
            patched.setattr(increment, "_folded", skipping)
            shop.change("UPDATE orders SET amount = amount + 60 WHERE id IN (14, 15, 16)")
            assert follower.round().error is None
            assert follower.is_here, "Spark made this round, and the next ones are made here again"
        shop.is_right()


@pytest.mark.matrix
def test_twin_a_record_that_is_skipped_is_not_seen_where_nobody_counts(shop, monkeypatch):
    sound = increment._folded
    with shop.followed() as follower, monkeypatch.context() as patched:
        patched.setattr(Resident, "_compare", lambda *_: None)
        patched.setattr(increment, "_folded", lambda *some, **more: list(sound(*some, **more))[1:])
        shop.change("UPDATE orders SET amount = amount + 61 WHERE id IN (14, 15, 16)")
        assert follower.round().error is None
        with pytest.raises(AssertionError):
            shop.is_right()
    assert shop.round(forward=False, source=RowsSource.START, verify=VerifyMode.FULL).error is None
    shop.is_right()


@pytest.mark.matrix
def test_a_key_that_is_not_found_here_is_found_when_all_is_compared(shop, monkeypatch):
    sound = Walk.related

    def forgetful(self):
        found = sound(self)
        return dataclasses.replace(found, affected=found.affected.filter(pc.field("id") != 17))

    with shop.followed() as follower, monkeypatch.context() as patched:
        patched.setattr(Walk, "related", forgetful)
        shop.change("UPDATE orders SET amount = amount + 62 WHERE id IN (17, 18)")
        assert follower.round().error is None
        with pytest.raises(AssertionError):
            shop.is_right()
        patched.setattr(follower, "_looked", -math.inf)
        shop.change("UPDATE orders SET amount = amount + 62 WHERE id = 19")
        outcome = follower.round()
        assert isinstance(outcome.error, RefutedError)
    assert shop.round(forward=False, source=RowsSource.START, verify=VerifyMode.FULL).error is None
    shop.is_right()


@pytest.mark.matrix
def test_what_was_altered_behind_its_back_is_on_record_and_written_anew(shop, monkeypatch):
    name = shop.names["totals"]
    (spec,) = Catalog.of(shop.project.root).load_all([name])

    def doctor():
        findings = Findings()
        look_at_views(findings, load_project(shop.project.root))
        return next(view for view in findings.all if view.check == f"view {name}")

    def recorded():
        return [row for row in history.rows([name]) if row.at > begun]

    with shop.followed() as follower:
        history, begun = GenerationHistory(shop.settings().warehouse), datetime.now(UTC)
        assert follower.round() is None, "nothing is new, and it is not time to compare all"
        monkeypatch.setattr(follower, "_looked", -math.inf)
        outcome = follower.round()
        assert outcome is not None, "all that is served is compared at rest too"
        assert outcome.error is None
        assert origins(outcome) == ["refresh: unchanged"] * 3
        assert follower.round() is None, "once in each period"
        (row,) = recorded()
        assert (row.state, row.verified, row.is_of_changes) == ("published", True, False)
        assert doctor().text.startswith(f"generation {row.generation}, proved")
        monkeypatch.setattr("views.rebuild.resident.RECORDED_EVERY", timedelta(0))
        shop.change("UPDATE orders SET amount = amount + 1 WHERE id = 12")
        assert follower.round().error is None
        assert (recorded()[-1].verified, recorded()[-1].is_of_changes) == (True, True)
        assert "changed rows proved, all rows at" in doctor().text
        execute(shop.target, f"DELETE FROM {name} WHERE customer_id = 2")
        monkeypatch.setattr(follower, "_looked", -math.inf)
        error = follower.round().error
        assert isinstance(error, RefutedError)
        assert "in postgres, where readers see it" in str(error)
        refuted = recorded()[-1]
        assert (refuted.state, refuted.verified, refuted.mismatches) == ("refuted", False, 1)
        assert "customer_id=2: missing" in refuted.note
        found = doctor()
        assert (found.state, found.exit_code) == (Level.PROBLEM, 3)
        assert f"generation {row.generation}, which serves, was refuted" in found.text
        hour = datetime.now(UTC) - timedelta(hours=1)
        serving = {"postgres": row.generation}
        assert not is_recent(spec, history.rows([name]), serving, hour, VerifyMode.NONE)
        # What serves is not built upon any more: the next round writes it anew, and proves it.
        assert follower.round().error is None
        shop.is_right()
        assert doctor().state is Level.OK
        served = as_served(recorded())
        assert served is not None
        assert served.generation > row.generation


def moved_twice(shop, one, other):
    """Let readers see an order under one customer by a round without Spark, then move it on."""
    with shop.followed() as follower:
        shop.change(f"UPDATE orders SET customer_id = {one} WHERE id = 31")
        assert follower.round().error is None
        assert follower.is_here
    shop.change(f"UPDATE orders SET customer_id = {other} WHERE id = 31")


@pytest.mark.matrix
def test_a_follower_that_starts_again_knows_what_rows_held_where_it_was(shop):
    moved_twice(shop, 25, 26)
    outcome = shop.round()
    assert outcome.error is None
    assert all(each.startswith("forward") for each in origins(outcome)), origins(outcome)
    shop.is_right()


@pytest.mark.matrix
def test_where_the_log_has_not_that_frontier_views_are_computed_whole(shop, monkeypatch):
    moved_twice(shop, 27, 28)
    monkeypatch.setattr(Stops, "_records", lambda *_: [])
    outcome = shop.round()
    assert outcome.error is None
    whole = {result.view for result in outcome.results if "computed whole" in result.origin}
    assert whole == {*shop.names.values()}, "none of their keys is that of the table that moved"
    shop.is_right()


@pytest.mark.matrix
def test_twin_what_rows_held_inside_of_a_layer_leaves_a_row_that_nobody_has(shop, monkeypatch):
    moved_twice(shop, 29, 30)
    with monkeypatch.context() as patched:
        patched.setattr(Stops, "before", lambda _, plan, __: plan)
        patched.setattr(StoredRecords, "knows_rows_at", lambda *_: True)
        assert shop.round().error is None
    with pytest.raises(AssertionError):
        shop.is_right()
    assert shop.round(forward=False, source=RowsSource.START, verify=VerifyMode.FULL).error is None
    shop.is_right()


@pytest.mark.matrix
def test_together_a_sink_that_was_away_from_a_round_catches_up_by_spark(shop, monkeypatch):
    def away(*_):
        raise UnavailableSinkError("the server does not answer")

    with shop.followed(together=True) as follower:
        with monkeypatch.context() as patched:
            patched.setattr(PostgresSink, "apply", away)
            shop.change("UPDATE orders SET amount = amount + 64 WHERE id = 22")
            outcome = follower.round()
        failed = [result.view for result in outcome.results if result.error is not None]
        assert failed == [shop.names["totals"]]
        assert not follower.is_here
        shop.change("UPDATE orders SET amount = amount + 65 WHERE id = 23")
        assert follower.round().error is None
        shop.is_right()
        assert follower.is_here


@pytest.mark.matrix
def test_checkpoints_are_brought_forward_beside_the_rounds(shop, monkeypatch):
    monkeypatch.setattr(sealing, "EVERY_S", 0.0)
    with shop.followed() as follower:
        follower._sealer.done()  # the start may have begun a run, to where it is itself
        shop.change("UPDATE orders SET amount = amount + 66 WHERE id = 26")
        outcome = follower.round()
        assert outcome.error is None
    store = store_of(load_project(shop.project.root))
    frontier = outcome.results[0].frontier
    topics = {frontier.topic_of(table) for spec in shop.specs for table in spec.tables}
    sealed = {store.manifest(topic).checkpoints[-1].frontier.lsn for topic in topics}
    assert min(sealed) >= frontier.lsn
    shop.is_right()
