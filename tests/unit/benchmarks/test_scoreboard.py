"""The scoreboard: the same work from the same seed, and what its table says."""

import psycopg2
import pytest

from benchmarks.scoreboard import workload
from benchmarks.scoreboard.__main__ import page
from benchmarks.scoreboard.workload import TABLES, Workload


class Session:
    """Keeps the statements of a transaction, in the order in which they are sent."""

    def __init__(self, sent):
        self._sent = sent

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def cursor(self):
        return self

    def close(self):
        """Do nothing: there is no server."""

    def execute(self, text, values):
        self._sent.append((text, tuple(values or ())))


def statements(monkeypatch, seed):
    sent: list[tuple[str, tuple[object, ...]]] = []
    parts: list[float] = []
    monkeypatch.setattr(psycopg2, "connect", lambda _: Session(sent))
    Workload(seed, 300).run("", per_s=1e9, at=parts.append)
    assert len(parts) == 301
    return sent


def test_a_seed_gives_the_same_work_again(monkeypatch):
    assert statements(monkeypatch, 1) == statements(monkeypatch, 1)
    assert statements(monkeypatch, 1) != statements(monkeypatch, 2)


def test_every_table_is_worked_on_and_altered(monkeypatch):
    texts = [text for text, _ in statements(monkeypatch, 1)]
    assert all(any(table in text for text in texts) for table in TABLES)
    assert len([text for text in texts if text.startswith("ALTER")]) == len(
        list(workload.ALTERATIONS)
    )


EQUAL = {"rows": 5, "lost": 0, "kept": 0, "wrong": 0, "columns": {}, "not_compared": {}}


@pytest.mark.parametrize(
    ("report", "cell"),
    [
        (EQUAL, "equal, 5 rows"),
        ({**EQUAL, "lost": 2, "kept": 1}, "2 lost; 1 kept"),
        ({**EQUAL, "wrong": 3, "columns": {"span": 3}}, "3 wrong; in `span` 3"),
        ({**EQUAL, "not_compared": {"more": "no such column"}}, "without `more`"),
        ({"no_copy": "no table | here"}, "no copy: no table / here"),
        ({"left_out": "by hand"}, "left out: by hand"),
    ],
)
def test_a_cell_says_what_differs(report, cell):
    board = {
        "name": "one",
        "version": "1",
        "to": "PostgreSQL",
        "last_row_s": None,
        "limits": {},
        "tables": dict.fromkeys(TABLES, EQUAL) | {"typed": report},
    }
    lines = page({"patience_s": 180.0, "pipelines": [board]}).splitlines()
    assert f"| `typed` | {cell} |" in lines
    assert lines[-1].endswith("| not within 180 s |")
