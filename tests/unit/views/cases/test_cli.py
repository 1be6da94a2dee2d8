"""`changelog test` as far as it needs no Spark: what it is asked, and first files of cases."""

from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from changelog.contract.base.errors import ChangelogError, ConfigurationError, ViewError
from views.cases import cli
from views.cases.cli import check_cases
from views.scaffold.cli import write_project

Run = Callable[..., Result]
CASES = Path("views/orders_per_customer.cases.toml")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command()(check_cases)
    return lambda *words: CliRunner().invoke(app, list(words))


def refused(result: Result) -> ChangelogError:
    assert isinstance(result.exception, ChangelogError), result
    return result.exception


def test_a_first_file_is_written_without_a_log_too(run: Run) -> None:
    CASES.unlink()
    result = run("--init", "--json")
    assert result.exit_code == 0, result
    assert str(CASES.name) in result.stdout
    assert "[[case]]" in CASES.read_text("utf-8")


def test_views_that_have_cases_are_left_alone(run: Run) -> None:
    text = CASES.read_text("utf-8")
    Path("views/more.sql").write_text("-- key: order_id\nSELECT * FROM orders", "utf-8")
    assert run("--init").exit_code == 0
    assert Path("views/more.cases.toml").exists()
    for words in (["more", "orders_per_customer"], []):
        assert "nothing was written" in str(refused(run("--init", *words)))
    assert CASES.read_text("utf-8") == text


def test_what_cannot_be_run_is_an_error_of_usage(run: Run) -> None:
    assert "no view 'nonsense'" in str(refused(run("nonsense")))
    CASES.write_text("x", "utf-8")
    assert refused(run()).exit_code == 2
    CASES.unlink()
    for words in ([], ["orders_per_customer"]):
        error = refused(run(*words))
        assert isinstance(error, ConfigurationError | ViewError)
        assert error.exit_code == 2
        assert "changelog test --init" in str(error)


def test_cases_that_cannot_be_read_leave_those_of_others_to_run(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("views/broken.cases.toml").write_text("x", "utf-8")
    ran: list[str] = []

    def run_them(files: list, *_: object, **__: object) -> list:
        ran.extend(spec.name for spec, _ in files)
        return []

    monkeypatch.setattr(cli, "_run", run_them)
    result = run("--json")
    assert (result.exit_code, ran) == (2, ["orders_per_customer"])
    assert '"passed": false' in result.stdout
    assert "no view 'broken'" in result.stderr
    assert "no view 'broken'" in str(refused(run("orders_per_customer", "broken")))
