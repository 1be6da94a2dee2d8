"""`changelog init`: a project that loads, and nothing overwritten."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from changelog.config import every_setting, validated
from changelog.contract.base.errors import ChangelogError, ConfigurationError
from changelog.contract.rows.relation import TableName
from changelog.reference import shown
from replay.base.sections import Spark
from views.project.catalog import Catalog
from views.scaffold.cli import init, write_project


def test_the_project_that_is_written_has_valid_settings_and_views(tmp_path: Path) -> None:
    written = write_project(tmp_path / "new" / "project")
    assert {path.name for path in written} == {
        "changelog.toml",
        "orders_per_customer.sql",
        "orders_per_customer.cases.toml",
        "example.sql",
        "README.md",
        ".gitignore",
    }
    settings = tomllib.loads(written[0].read_text(encoding="utf-8"))
    assert validated(settings)["capture"].model_dump()["tables"] == ("public.*",)
    (spec,) = Catalog.of(tmp_path / "new" / "project").load_all()
    assert spec.tables == (TableName("public", "customers"), TableName("public", "orders"))


def test_every_setting_that_is_commented_out_is_a_setting(tmp_path: Path) -> None:
    text = write_project(tmp_path)[0].read_text(encoding="utf-8")
    lines = [line.removeprefix("# ") for line in text.splitlines()]
    settings = "\n".join(line for line in lines if line.startswith(("[", '"')) or " = " in line)
    for contradicting in ("groups", "start_lsn"):  # one of both, never both
        said = tomllib.loads(settings)
        del said["capture"][contradicting]
        spark = validated(said)["spark"]
        assert isinstance(spark, Spark)
        assert spark.settings


def written_settings(folder: Path) -> dict[str, Any]:
    """Return what the file says of each setting, commented out or not, by its whole name."""
    text = write_project(folder)[0].read_text(encoding="utf-8")
    found: dict[str, Any] = {}
    section = ""
    for line in text.splitlines():
        bare = line.removeprefix("# ")
        if header := re.match(r"\[(.+?)\]", bare):
            section = header[1]
        elif re.match(r'[\w."]+ = ', bare):
            found |= named(tomllib.loads(f"[{section}]\n{bare}"))
    return found


def named(settings: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Return settings and the tables around them by their whole names."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found[above + name] = value
        if isinstance(value, dict):
            found |= named(value, f"{above}{name}.")
    return found


def test_every_setting_is_written_with_its_default(tmp_path: Path) -> None:
    written = written_settings(tmp_path)
    assert [each.name for each in every_setting() if each.name not in written] == []
    for each in every_setting():
        # What has no default is shown by an example.
        if each.default not in ("", None, {}):
            said = json.loads(shown(each.default))
            assert (each.name, written[each.name]) == (each.name, said)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"holds README\.md already"):
        write_project(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == "mine"


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ChangelogError, match="cannot write"):
        write_project(tmp_path / "file" / "project")


def test_the_command_says_what_it_wrote(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(init)
    result = CliRunner().invoke(app, [str(tmp_path / "p"), "--json"])
    assert result.exit_code == 0
    assert '"files"' in result.stdout
