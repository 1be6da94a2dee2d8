"""How a download shows itself."""

import io

from rich.console import Console

from changelog.stack.download.fetch import FetchProgress, download_display
from tests.support.narrow import COLUMNS, misfits


def _shown(*, terminal: bool) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=COLUMNS, no_color=True)
    with download_display(console) as show:
        show(FetchProgress(artifacts=0, artifacts_total=85, bytes=0, bytes_total=900_000_000))
        show(FetchProgress(85, 85, 450_000_000, 900_000_000))
    return file.getvalue()


def test_a_narrow_terminal_has_files_bytes_rate_and_time_left_in_one_line():
    said = _shown(terminal=True)
    assert misfits(said) == []
    (line, *_) = [each for each in said.splitlines() if "85/85 files" in each and "450.0/" in each]
    assert ":" in line.rpartition("MB")[2], "the time left"


def test_elsewhere_there_are_plain_lines():
    assert _shown(terminal=False).splitlines()[-1] == ("downloading 85/85 files, 450.0 of 900.0 MB")
