"""Two databases, two captures: a project whose views join its tables with those of another one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from changelog.stack.stack import Stack
from tests.support.captured_project import CapturedProject, captured_database

ORDERS = """
CREATE TABLE orders (id int PRIMARY KEY, item text);
INSERT INTO orders VALUES (1, 'bread'), (2, 'milk')
"""
BILLING = """
CREATE TABLE payments (id int PRIMARY KEY, amount int);
CREATE TABLE totals (id int PRIMARY KEY, total int);
INSERT INTO payments VALUES (1, 110);
INSERT INTO totals VALUES (1, 110), (2, 0)
"""
PAY = """
BEGIN;
INSERT INTO payments VALUES (2, 220);
UPDATE totals SET total = 220 WHERE id = 2;
COMMIT
"""
JOINED = """-- key: id
SELECT o.id, o.item, p.amount, t.total
FROM orders o LEFT JOIN paid p ON p.id = o.id LEFT JOIN billing.totals t ON t.id = o.id
"""


@dataclass(frozen=True)
class Two:
    """A project whose view joins its tables with those of another one."""

    shop: CapturedProject
    billing: CapturedProject
    own: str
    prefix: str

    @property
    def topics(self) -> list[str]:
        return [f"{self.prefix}.payments", f"{self.prefix}.totals"]

    def declare(self, said: str) -> None:
        """Declare both tables of the other project, with `said` of each."""
        payments, totals = self.topics
        self.settle(
            f'[logs.paid]\ntopic = "{payments}"\n{said}\n'
            f'[logs."billing.totals"]\ntopic = "{totals}"\n{said}\n'
        )

    def settle(self, text: str) -> None:
        settings = self.shop.root / "changelog.toml"
        before, _, _ = settings.read_text().partition("[logs.")
        settings.write_text(before + text)

    def captured(self) -> str:
        return f'frontier = "{self.prefix}._frontier"\nslot = "{self.prefix}"'

    def rows(self):
        found = self.shop.delta("joined")
        return [(r["id"], r["item"], r["amount"], r["total"]) for r in found]

    def tear(self) -> None:
        """Have a transaction of the other project on its log in part, its capture killed."""
        self.billing.execute(PAY)
        words = ["-m", "tests.support.crashing_capture", str(self.billing.root), "--until", "now"]
        words += ["--kill", "record produced:1", "--defect", "deliver_each"]
        ran = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, timeout=120, check=False
        )
        assert ran.returncode == -9, ran.stderr


@contextmanager
def two_captures(stack: Stack, folder: Path) -> Iterator[Callable[..., Two]]:
    """Give what makes two captured projects, the other one by some more settings."""
    with ExitStack() as held:

        def made(**more) -> Two:
            shop, own = held.enter_context(captured_database(stack, folder / "shop", ORDERS))
            billing, prefix = held.enter_context(
                captured_database(stack, folder / "billing", BILLING, **more)
            )
            two = Two(shop, billing, own, prefix)
            two.declare(two.captured())
            return two

        yield made
