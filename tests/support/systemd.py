"""systemd itself, as the first process of a small machine, with the units of the examples."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from changelog.stack.base.places import CACHE_VARIABLE, ROOT_CACHE, cache_dir
from tests.support.example_files import TIMERS, UNITS, installed
from tests.support.small_machine import Daemon, SmallMachine, small_machine
from tests.support.wait import wait_until

_SYSTEMD = Path("/lib/systemd/systemd")
_TARGETS = ("sysinit", "basic", "shutdown", "network-online", "timers", "multi-user")
"""What a unit needs of a machine that has booted; here they are empty."""
_DAY_S = 86_400


@dataclass(frozen=True)
class BootedMachine(SmallMachine):
    def shown(self, unit: str, name: str) -> str:
        return self.run("systemctl", "show", unit, "--property", name, "--value").strip()

    def is_up(self) -> bool:
        return self.run("systemctl", "is-active", "basic.target", code=None) == "active\n"


@contextmanager
def booted(
    folder: Path, venv: Path, project: Path, *, days_off: int = 0
) -> Iterator[BootedMachine]:
    """Boot a machine with the units of the examples; what they print is in the project's folder.

    Their standard output is `said`, their standard error `errors`.
    """
    if not _SYSTEMD.exists():
        pytest.skip("systemd is not installed")
    stamps = folder / "stamps"
    stamps.mkdir(parents=True)
    if days_off:
        last = stamps / "stamp-changelog-rebuild.timer"
        last.touch()
        os.utime(last, (time.time() - days_off * _DAY_S,) * 2)
    units = {f"systemd/system/{each.name}": each.read_text("utf-8") for each in UNITS + TIMERS}
    empty = dict.fromkeys(_TARGETS, "[Unit]\nDefaultDependencies=no\n")
    daemon = Daemon(
        command=[str(_SYSTEMD), "--unit=basic.target", "--log-target=null"],
        environment={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "container": "changelog-test"},
        files={
            **units,
            **{f"systemd/system/{name}.target": text for name, text in empty.items()},
            "systemd/system/changelog-.service.d/here.conf": _of_this_machine(venv),
            "systemd/system/changelog-rebuild.timer.d/soon.conf": "[Timer]\nRandomizedDelaySec=0\n",
        },
        binds={**installed(venv, project, folder / "logs"), "/var/lib/systemd/timers": stamps},
    )
    with small_machine(folder / "machine", daemon) as running:
        machine = BootedMachine(running.first)
        wait_until(machine.is_up, 60, "it has booted")
        yield machine


def _of_this_machine(venv: Path) -> str:
    """Return settings of all our services that are of this machine, not of the example.

    Python and the package may lie in a home or under `/tmp`, which the units hide.
    """
    places = {Path(sys.base_prefix), venv, Path(__file__).parents[2]}
    lines = [f"BindReadOnlyPaths={each}" for each in sorted(places)]
    if (cache := cache_dir()) != ROOT_CACHE:
        lines += [f"BindPaths={cache}", f"Environment={CACHE_VARIABLE}={cache}"]
    settings = [
        "[Service]",
        "ProtectHome=tmpfs",
        "StandardOutput=append:/srv/shop/said",
        "StandardError=append:/srv/shop/errors",
    ]
    return "\n".join([*settings, *lines, ""])


@contextmanager
def told_by(errors: Path) -> Iterator[None]:
    """Add what services told to a failure."""
    try:
        yield
    except AssertionError as error:
        said = errors.read_text("utf-8") if errors.exists() else "nothing"
        error.add_note(f"services told: {said[-4_000:]}")
        raise
