"""What was staged is published, compared or aborted, and views are dropped, without servers."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from changelog.config import load_project
from changelog.contract.base.errors import ChangelogError, LockedError, SinkError, ViewError
from changelog.runtime.terminal import console
from tests.unit.views.fakes import FakeSink
from views import command
from views.base.address import Address
from views.base.config import RebuildSettings, VerifyMode
from views.base.progress import Stages
from views.generations.history import (
    DROPPED,
    FAILED,
    PUBLISHED,
    RETIRED,
    SEALED,
    STAGED,
    GenerationHistory,
    HistoryRow,
    last_states,
)
from views.generations.lock import building
from views.generations.place import place_for
from views.generations.served import Served
from views.generations.staging import NothingStagedError
from views.generations.swap import settle
from views.project.catalog import Catalog
from views.project.definition import changed_declaration, declaration_of
from views.rebuild.diff import ColumnChanges, diff
from views.rebuild.drop import drop, to_drop
from views.rebuild.read_back import UncomparableError
from views.rebuild.result.report import results_table
from views.rebuild.rollback import NothingToRollBackError, RolledBackError, roll_back
from views.rebuild.staged import UnverifiedError, publish_staged
from views.scaffold.cli import write_project
from views.verify.kept.folder import KeptTopic

VIEW = "orders_per_customer"
OTHER = "other"


class Bench:
    """A project with views whose sinks are fakes, and its history."""

    def __init__(self, root: Path) -> None:
        write_project(root)
        text = (root / "views" / f"{VIEW}.sql").read_text(encoding="utf-8")
        (root / "views" / f"{OTHER}.sql").write_text(text, encoding="utf-8")
        self.root = root
        self.settings = RebuildSettings(project=load_project(root, needs=[]))
        self.stages = Stages(console)
        self.history = GenerationHistory(self.settings.warehouse)
        self.sinks = {name: {"a": FakeSink(None, []), "b": FakeSink(None, [])} for name in self.all}

    all = (VIEW, OTHER)

    def specs(self, *names: str):
        return Catalog.of(self.root).load_all(names or [VIEW])

    def served(self, spec, *_):
        return Served(spec.name, self.sinks[spec.name])

    def served_by_name(self, view: str):
        return Served(view, self.sinks[view])

    def has(self, *steps: tuple[int, str], view: str = VIEW, **more) -> None:
        """Let generations have come so far, and the last published one serve."""
        for number, state in steps:
            self.history.append([HistoryRow(view=view, generation=number, state=state, **more)])
            for sink in self.sinks[view].values():
                sink.there.add(number)
                sink.current = number if state == PUBLISHED else sink.current

    def current(self, view: str = VIEW) -> list[int | None]:
        return [sink.current for sink in self.sinks[view].values()]

    def publish(self, *names: str, **more):
        settings = more.pop("settings", self.settings)
        return publish_staged(
            self.specs(*names), settings, self.stages, make_served=self.served, **more
        )

    def roll_back(self, generation: int | None = None):
        settings = replace(self.settings, verify=VerifyMode.NONE)
        specs, stages = self.specs(), self.stages
        return roll_back(specs, settings, stages, generation=generation, make_served=self.served)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "project")


def test_what_is_staged_is_published_in_every_sink_and_on_record(bench) -> None:
    bench.has((1, PUBLISHED), (2, STAGED), (3, PUBLISHED), verified=True)
    (result,) = bench.publish()
    assert bench.current() == [2, 2]
    assert (result.generation, result.published, result.verified) == (2, True, True)
    last = bench.history.rows([VIEW], generation=2)[-1]
    assert last.state == PUBLISHED
    assert last.note == "was staged, in place of generation 3"
    assert last.switch_seconds == result.switch_seconds is not None
    assert all(sink.there == {2, 3} for sink in bench.sinks[VIEW].values()), "1 is retired"
    back = roll_back(bench.specs(), bench.settings, bench.stages, make_served=bench.served)
    assert back[0].generation == 3
    assert bench.current() == [3, 3]


def test_a_proof_stays_with_its_generation_when_readers_go_back_to_it(bench) -> None:
    proved = {"lsn": "0/2", "rows": 7, "mismatches": 0}
    reports = {"a": {"certificate": {"mode": "full"}, "rows_expected": 7}}
    bench.has((1, PUBLISHED), verified=True, certificate=reports, **{**proved, "lsn": "0/1"})
    bench.has((1, PUBLISHED), verified=True, certificate=reports, **proved)  # it went forward
    bench.has((2, PUBLISHED), (3, PUBLISHED), verified=None, certificate=reports, **proved)
    for number, verified, said in ((2, None, "inputs equal"), (1, True, "equal, row by row")):
        (back,) = bench.roll_back(number)
        assert (back.generation, back.verified, back.rows, back.mode) == (
            number,
            verified,
            7,
            "full",
        )
        shown = StringIO()
        Console(file=shown, width=200).print(results_table([back]))
        assert said in shown.getvalue()
        last = last_states(bench.history.rows([VIEW]))[VIEW, number]
        assert (last.state, last.verified, last.lsn) == (PUBLISHED, verified, "0/2")
    bench.history.append([HistoryRow(view=VIEW, generation=1, state=RETIRED)])
    retired = last_states(bench.history.rows([VIEW]))[VIEW, 1]
    assert (retired.state, retired.verified, retired.rows) == (RETIRED, True, 7)


def test_each_of_them_waits_for_another_run_as_long_as_it_was_told_to(bench) -> None:
    bench.has((1, PUBLISHED), (2, STAGED), (3, PUBLISHED), (4, STAGED), verified=True)
    patient = load_project(bench.root, needs=[], overrides={"runs.wait_seconds": 60.0})
    settings = replace(bench.settings, project=patient)
    specs, stages, made = bench.specs(), bench.stages, bench.served
    works = {
        "publish": lambda **how: publish_staged(specs, stages=stages, make_served=made, **how),
        "roll back": lambda **how: roll_back(specs, stages=stages, make_served=made, **how),
        "drop": lambda **how: drop(
            to_drop([VIEW], settings), stages=stages, make_served=made, **how
        ),
    }
    for what, work in works.items():
        looked = list[bool]()

        def somebody_ends(other, looked=looked) -> bool:
            """Let the other run go once somebody has waited for it."""
            looked.append(True)
            other.close()
            return False

        with ExitStack() as other:
            other.enter_context(building(place_for(settings), [VIEW]))
            with pytest.raises(LockedError, match="another rebuild"):
                work(settings=bench.settings)
            work(settings=settings, stop=lambda other=other: somebody_ends(other))
        assert looked, what


def test_views_move_together_or_not_at_all(bench) -> None:
    for view in bench.all:
        bench.has((1, PUBLISHED), (2, STAGED), view=view, verified=True)
    bench.sinks[OTHER]["b"].refuses = {2}
    with pytest.raises(SinkError, match="the server is away"):
        bench.publish(*bench.all)
    assert [bench.current(view) for view in bench.all] == [[1, 1], [1, 1]]
    assert bench.history.states(VIEW)[2] == STAGED
    bench.sinks[OTHER]["b"].refuses = set()
    assert [result.generation for result in bench.publish(*bench.all)] == [2, 2]
    assert [bench.current(view) for view in bench.all] == [[2, 2], [2, 2]]


class Killed(BaseException):
    """The end of a process, which nothing catches."""


class Kills(FakeSink):
    """Ends the process that asks it to move."""

    def publish(self, generation: int) -> None:
        raise Killed


def cut_off(bench, act) -> None:
    """Kill what moves both views before the last sink of the second has moved."""
    sound = bench.sinks[OTHER]["b"]
    bench.sinks[OTHER]["b"] = Kills(sound.current, sound.there)
    with pytest.raises(Killed):
        act()
    bench.sinks[OTHER]["b"] = sound


@pytest.mark.parametrize("sinks", [["a", "b"], ["b"]])
@pytest.mark.parametrize("first", [VIEW, OTHER])
def test_a_publication_that_was_cut_off_is_ended_by_whichever_view_runs_next(
    bench, sinks, first
) -> None:
    bench.sinks[OTHER] = {name: bench.sinks[OTHER][name] for name in sinks}
    for view in bench.all:
        bench.has((1, PUBLISHED), (2, STAGED), view=view, verified=True)
    cut_off(bench, lambda: bench.publish(*bench.all))
    for view in (first, *({*bench.all} - {first})):
        bench.publish(view)
        assert set(bench.current(view)) == {2}
        assert bench.history.states(view)[2] == PUBLISHED


def sealed_together(bench, moved: str | None) -> None:
    for view in bench.all:
        bench.has((1, PUBLISHED), view=view)
        bench.has((2, SEALED), view=view, together=dict.fromkeys(bench.all, 2))
    for sink in bench.sinks[moved].values() if moved else ():
        sink.current = 2


@pytest.mark.parametrize("moved", [VIEW, OTHER, None])
def test_views_of_a_run_that_was_killed_are_published_together_or_not_at_all(bench, moved) -> None:
    sealed_together(bench, moved)
    for view in bench.all:
        settle(bench.served_by_name(view), bench.history, peers=bench.served_by_name)
    expected = 2 if moved else 1
    assert [bench.current(view) for view in bench.all] == [[expected] * 2] * 2
    assert [bench.history.states(view)[2] == PUBLISHED for view in bench.all] == [bool(moved)] * 2


def test_twin_that_asks_no_other_view_throws_one_away(bench, monkeypatch) -> None:
    monkeypatch.setattr("views.generations.swap._has_moved", lambda *_: False)
    sealed_together(bench, OTHER)
    for view in bench.all:
        settle(bench.served_by_name(view), bench.history, peers=bench.served_by_name)
    assert [bench.current(view) for view in bench.all] == [[1, 1], [2, 2]]


def test_a_view_that_was_published_alone_since_takes_no_other_along(bench) -> None:
    for view in bench.all:
        bench.has((1, PUBLISHED), (2, STAGED), view=view, verified=True)
    bench.sinks[OTHER]["b"].refuses = {2}
    with pytest.raises(SinkError):
        bench.publish(*bench.all)
    bench.publish(VIEW)
    settle(bench.served_by_name(OTHER), bench.history, peers=bench.served_by_name)
    assert [bench.current(view) for view in bench.all] == [[2, 2], [1, 1]]


def test_a_rollback_that_was_cut_off_is_ended_and_goes_no_further(bench) -> None:
    for view in bench.all:
        bench.has((1, PUBLISHED), (2, PUBLISHED), (3, PUBLISHED), view=view)
    specs = bench.specs(*bench.all)
    back = partial(
        roll_back,
        specs,
        replace(bench.settings, verify=VerifyMode.NONE),
        bench.stages,
        make_served=bench.served,
    )
    cut_off(bench, back)
    assert [bench.current(view) for view in bench.all] == [[2, 2], [2, 3]]
    assert [result.generation for result in back()] == [2, 2]
    assert [bench.current(view) for view in bench.all] == [[2, 2], [2, 2]]


def test_a_rollback_behind_a_rollback_wants_the_number(bench) -> None:
    """A repeated command whose first run was killed once it was recorded goes no further."""
    bench.has((1, PUBLISHED), (2, PUBLISHED), (3, PUBLISHED))
    bench.roll_back()
    before = bench.history.rows([VIEW])
    with pytest.raises(RolledBackError, match="from generation 3 and serves 2") as refused:
        bench.roll_back()
    assert f"`rebuild-view {VIEW} 1 --rollback` goes further back" in str(refused.value)
    (again,) = bench.roll_back(2)
    assert (again.generation, again.published, again.switch_seconds) == (2, True, None)
    assert (bench.current(), bench.history.rows([VIEW])) == ([2, 2], before)
    for number in (3, 7):
        with pytest.raises(NothingToRollBackError, match=f"no generation {number}"):
            bench.roll_back(number)
    assert bench.roll_back(1)[0].generation == 1
    assert bench.current() == [1, 1]
    with pytest.raises(NothingToRollBackError, match="no older generation"):
        bench.roll_back()


def test_a_rollback_goes_on_where_something_was_published_since_the_last_one(bench) -> None:
    bench.has((1, PUBLISHED), (2, PUBLISHED), (3, PUBLISHED))
    bench.roll_back()
    bench.has((4, PUBLISHED))
    assert bench.roll_back()[0].generation == 2
    bench.has((2, PUBLISHED))  # it went forward
    assert bench.roll_back()[0].generation == 1


def test_a_rollback_may_take_two_steps_at_once(bench) -> None:
    bench.has((1, PUBLISHED), (2, PUBLISHED), (3, PUBLISHED))
    assert bench.roll_back(1)[0].generation == 1
    assert bench.current() == [1, 1]


@pytest.mark.parametrize("number", [None, 1])
def test_a_second_rollback_that_was_cut_off_is_ended(bench, number) -> None:
    bench.has((1, PUBLISHED), (2, PUBLISHED), (3, PUBLISHED))
    bench.roll_back()
    for sink in bench.sinks[VIEW].values():
        sink.current = 1
    assert bench.roll_back(number)[0].generation == 1
    assert bench.history.states(VIEW)[1] == PUBLISHED
    assert bench.history.rows([VIEW])[-1].generation == 1


def test_twin_that_goes_by_numbers_goes_too_far(bench, monkeypatch) -> None:
    monkeypatch.setattr("views.rebuild.rollback.line_of", lambda _: [])
    with pytest.raises(AssertionError):
        test_a_rollback_that_was_cut_off_is_ended_and_goes_no_further(bench)


def test_a_sink_without_it_keeps_all_sinks_from_moving(bench) -> None:
    bench.has((1, PUBLISHED), (2, STAGED), verified=True)

    class Lacks(FakeSink):
        def rows(self, generation: int) -> int:
            raise SinkError(f"the sink holds no generation {generation}")

    bench.sinks[VIEW]["b"] = Lacks(1, [1])
    with pytest.raises(SinkError, match="holds no generation 2"):
        bench.publish()
    assert bench.current() == [1, 1]


def test_what_was_not_verified_needs_a_word(bench) -> None:
    bench.has((1, PUBLISHED), (2, STAGED))
    with pytest.raises(UnverifiedError, match="staged without being verified"):
        bench.publish()
    assert bench.current() == [1, 1]
    bench.publish(settings=replace(bench.settings, verify=VerifyMode.NONE))
    assert bench.current() == [2, 2]


def test_of_a_view_in_python_equal_inputs_suffice(bench) -> None:
    bench.has((1, STAGED), certificate={"a": {"certificate": {}}}, mismatches=0)
    bench.publish()
    assert bench.current() == [1, 1]


def test_a_generation_that_is_named_has_to_be_the_staged_one(bench) -> None:
    bench.has((1, PUBLISHED), (2, STAGED), verified=True)
    with pytest.raises(NothingStagedError, match=r"generation 1 .* is not staged, generation 2 is"):
        bench.publish(generation=1)
    bench.publish(generation=2)
    with pytest.raises(NothingStagedError, match="no staged generation"):
        bench.publish()


def test_a_rebuild_that_was_killed_in_its_switch_is_finished_and_was_not_staged(bench) -> None:
    bench.has((1, PUBLISHED), (2, SEALED))
    bench.sinks[VIEW]["a"].current = 2
    with pytest.raises(NothingStagedError):
        bench.publish()
    assert bench.current() == [2, 2]


class Looked(FakeSink):
    """A sink that has somebody look at the terminal whenever it is asked for anything."""

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__(None, [])
        self.look = look

    def rows(self, generation: int) -> int:
        self.look()
        return super().rows(generation)

    def publish(self, generation: int) -> None:
        self.look()
        super().publish(generation)

    def discard(self, generation: int) -> None:
        self.look()
        super().discard(generation)

    def published(self) -> int | None:
        self.look()
        return super().published()


def watched(bench, *, as_json: bool, monkeypatch) -> StringIO:
    """Let stages be shown as on a terminal of 60 columns; returns what is seen there."""
    file = StringIO()
    terminal = Console(file=file, force_terminal=True, width=60)
    monkeypatch.setattr("changelog.runtime.terminal.console", terminal)
    bench.stages = command._stages(as_json=as_json)

    def look() -> None:
        if bench.stages._shown is not None:
            bench.stages._shown.refresh()

    for view in bench.all:
        bench.sinks[view] = {name: Looked(look) for name in "ab"}
        bench.has((1, PUBLISHED), (2, PUBLISHED), (3, STAGED), view=view, verified=True)
    return file


@pytest.mark.parametrize("as_json", [False, True], ids=["people", "json"])
def test_a_terminal_shows_how_many_sinks_are_asked_and_moved(bench, monkeypatch, as_json) -> None:
    file = watched(bench, as_json=as_json, monkeypatch=monkeypatch)
    with bench.stages.shown():
        bench.publish(*bench.all)
    assert [bench.current(view) for view in bench.all] == [[3, 3], [3, 3]]
    seen = [
        "what is staged: 0 of 8: orders_per_customer in a",
        "what is staged: 11 of 12, ",
        "publish every sink at once: 0 of 8: ",
        "publish every sink at once: 7 of 8, ",
        "remove old generations: 0 of 4: ",
        "remove old generations: 7 of 8, ",
    ]
    found = [text for text in seen if text in file.getvalue()]
    assert found == ([] if as_json else seen)
    assert (file.getvalue() == "") == as_json


class Lines(FakeSink):
    """A sink whose generations are files of JSON lines."""

    def __init__(self, folder: Path, generations: dict[int, list[dict]], published: int) -> None:
        super().__init__(published, generations)
        self.folder = folder
        for number, rows in generations.items():
            lines = (json.dumps({"id": str(row["id"]), "row": row}) for row in rows)
            (folder / f"{number}.jsonl").write_text("\n".join(lines), encoding="utf-8")

    def address(self, generation: int) -> Address:
        return Address("memory", {"path": str(self.folder / f"{generation}.jsonl")})


def compared(bench, tmp_path, before, after, columns=None, key=("id",)):
    """Return the diff of two generations of rows."""
    kinds = columns or {"id": "int", "name": "string", "x": "double"}
    old = {"text": "", "key": ["id"], "columns": [[*c] for c in [("id", "int")]]}
    old["columns"] = [[name, kind] for name, kind in dict(OLD).items()]
    new = {"text": "", "key": list(key), "columns": [[n, k] for n, k in kinds.items()]}
    bench.has((1, PUBLISHED), declaration=old)
    bench.has((2, STAGED), declaration=new)
    bench.sinks[VIEW] = {"a": Lines(tmp_path, {1: before, 2: after}, 1)}
    (spec,) = bench.specs()
    return diff(spec, bench.settings, bench.stages, make_served=bench.served)


OLD = {"id": "int", "name": "string", "x": "double"}


def rows(*numbers: int, **changed):
    return [{"id": n, "name": f"n{n}", "x": float(n), **changed} for n in numbers]


def test_a_diff_counts_rows_and_columns_and_shows_some(bench, tmp_path) -> None:
    before = rows(*range(1, 101))
    after = [*rows(*range(31, 100), 101), *rows(*range(3, 31), name="new")]
    found = compared(bench, tmp_path, before, after)
    assert (found.rows_serving, found.rows) == (100, 98)
    assert (found.added, found.removed, found.changed) == (1, 3, 28)
    assert found.by_column == {"name": 28}
    told = found.to_json()
    assert told["columns"] == {"added": {}, "removed": {}, "retyped": {}}
    by_kind = {kind: [s for s in told["samples"] if s["kind"] == kind] for kind in KINDS}
    assert [len(by_kind[kind]) for kind in KINDS] == [1, 3, 10]
    first = by_kind["changed"][0]
    assert (first["key"], first["column"]) == ({"id": "3"}, "name")
    assert (first["before"], first["after"]) == ("n3", "new")
    assert by_kind["added"][0]["after"] == "id=101, name=n101, x=101.0"
    assert by_kind["removed"][0]["before"] == "id=1, name=n1, x=1.0"
    with console.capture() as shown:
        console.print(found.render())
    text = " ".join(shown.get().split())
    assert "98 rows, 100 now: 1 added, 3 removed, 28 changed" in text
    assert "name differs in 28 rows" in text


KINDS = ("added", "removed", "changed")


def test_columns_that_come_go_or_change_their_type_are_told_apart(bench, tmp_path) -> None:
    after = [{"id": 1, "x": "1.0", "more": None}]
    kinds = {"id": "int", "x": "string", "more": "int"}
    found = compared(bench, tmp_path, rows(1), after, kinds)
    assert (found.added, found.removed, found.changed) == (0, 0, 0)
    assert found.columns == ColumnChanges(
        added={"more": "int"}, removed={"name": "string"}, retyped={"x": ("double", "string")}
    )
    assert "column x was double, is string: its values are not compared" in found.columns.lines()


def test_generations_without_a_common_key_are_not_compared(bench, tmp_path) -> None:
    with pytest.raises(UncomparableError, match="their rows cannot be matched"):
        compared(bench, tmp_path, rows(1), rows(1), key=("id", "name"))


def test_a_row_that_somebody_else_wrote_ends_the_comparison(bench, tmp_path) -> None:
    with pytest.raises(UncomparableError, match="not as it was written"):
        compared(bench, tmp_path, [{"id": 1, "name": 7, "x": 1.0}], rows(1))


def test_columns_that_are_not_on_record_are_no_guess(bench, tmp_path) -> None:
    bench.has((1, PUBLISHED), (2, STAGED))
    bench.sinks[VIEW] = {"a": Lines(tmp_path, {1: rows(1), 2: rows(1)}, 1)}
    (spec,) = bench.specs()
    with pytest.raises(UncomparableError, match="not on record"):
        diff(spec, bench.settings, bench.stages, make_served=bench.served)
    with pytest.raises(UncomparableError, match="serves: there is nothing to compare"):
        diff(spec, bench.settings, bench.stages, generation=1, make_served=bench.served)


def test_nothing_is_compared_with_nothing(bench) -> None:
    bench.has((1, STAGED))
    (spec,) = bench.specs()
    with pytest.raises(UncomparableError, match="nothing serves yet"):
        diff(spec, bench.settings, bench.stages, make_served=bench.served)


def dropped(bench, *names: str) -> None:
    drop(to_drop(names, bench.settings), bench.settings, bench.stages, make_served=bench.served)


def test_a_view_whose_file_is_gone_is_dropped_by_its_history(bench) -> None:
    bench.has((1, PUBLISHED), view=OTHER, sinks=("cache",))
    bench.has((2, PUBLISHED), view=OTHER, sinks=("delta", "search"))
    path = bench.root / "views" / f"{OTHER}.sql"
    path.unlink()
    (found,) = to_drop([OTHER], bench.settings)
    assert (set(found.sinks), found.has_file) == ({"cache", "delta", "search"}, False)
    assert str(found).endswith("its file is gone already)")
    dropped(bench, OTHER)
    assert bench.current(OTHER) == [None, None]
    with pytest.raises(ViewError, match="no view 'other'"):
        to_drop([OTHER], bench.settings)


def test_a_drop_knows_the_options_that_a_view_was_built_with(bench) -> None:
    built = {"postgres": {"table": "served.v"}, "cache": {"value": "hash"}}
    bench.has((1, PUBLISHED), sinks=("postgres", "cache"), declaration={"options": built})
    (found,) = to_drop([VIEW], bench.settings)
    assert found.spec.options == built
    path = bench.root / "views" / f"{VIEW}.sql"
    path.unlink()
    (found,) = to_drop([VIEW], bench.settings)
    assert (found.has_file, found.spec.options) == (False, built)


def test_a_declaration_shows_how_its_options_changed(bench) -> None:
    (spec,) = bench.specs(VIEW)
    before = declaration_of(spec, [("id", "int")])
    assert "options" not in before
    assert changed_declaration(before, spec, since="generation 1") == ""
    asked = replace(spec, options={"cache": {"value": "hash"}})
    told = changed_declaration(before, asked, since="generation 1")
    assert (f"+++ {VIEW}.cache.json" in told, '+  "value": "hash"' in told) == (True, True)
    told = changed_declaration(declaration_of(asked, []), spec, since="generation 1")
    assert '-  "value": "hash"' in told


def test_a_drop_that_breaks_off_is_ended_by_the_next(bench) -> None:
    bench.has((1, PUBLISHED))

    class Away(FakeSink):
        def drop(self) -> None:
            raise SinkError("the server is away")

    sound = bench.sinks[VIEW]["b"]
    bench.sinks[VIEW]["b"] = Away(1, [1])
    with pytest.raises(ChangelogError, match="away"):
        dropped(bench, VIEW)
    assert bench.history.states(VIEW) == {1: PUBLISHED}
    bench.sinks[VIEW]["b"] = sound
    dropped(bench, VIEW)
    assert bench.history.states(VIEW) == {1: DROPPED}


def test_what_was_proved_for_a_view_alone_goes_with_it(bench) -> None:
    def proved(*topics: str):
        return {"delta": {"certificate": {"ends": {topic: [1] for topic in topics}}}}

    bench.has((1, PUBLISHED), certificate=proved("own", "shared", "failed_too"))
    bench.has((1, FAILED), view=OTHER, certificate=proved("shared"))
    root = Path(bench.settings.warehouse) / "_proved"
    for topic in ("own", "shared"):
        with KeptTopic(root / topic):
            (root / topic / "manifest.json").write_text("{}", encoding="utf-8")
    assert to_drop([VIEW], bench.settings)[0].topics == ("failed_too", "own")
    dropped(bench, VIEW)
    assert sorted(path.name for path in root.iterdir()) == ["shared"]
