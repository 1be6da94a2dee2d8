"""A machine within this one: processes, mounts, `/etc` and `/run` of its own, the same network.

The kernel's namespaces make it, so it takes root. Its first process is a real daemon, which finds
there what it is to run and nothing of what this machine has for it. All of it ends when that
process does.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.support.wait import wait_until

USER = "changelog"
"""Of the examples; here by the number of who runs the tests, whose files it has to read."""
_OF_DAEMONS = ("crontab", "cron.d", "cron.hourly", "cron.daily", "systemd/system")
"""What the machine's own daemons would run."""
_EMPTY = (
    "/run", "/srv", "/opt", "/var/log", "/var/spool", "/var/lib/systemd", "/lib/systemd/system",
    "/lib/systemd/system-generators",
)  # fmt: skip
_OUTER = """
mkdir "$1/cgroup"
mount -t cgroup2 none "$1/cgroup"
before="$1/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)"
own="$1/cgroup/changelog-test-$$"
mkdir "$own"
echo $$ > "$own/cgroup.procs"
unshare --mount --pid --fork --kill-child --mount-proc --cgroup --uts --ipc sh -eu "$1/inner" "$@" &
echo $! > "$1/pid.part"
mv "$1/pid.part" "$1/pid"
wait || true
echo $$ > "$before/cgroup.procs"
find "$own" -depth -type d -exec rmdir {} ';'
"""
_INNER = """
folder=$1
shift
mount -t tmpfs none "$folder/etc"
cp -a /etc/. "$folder/etc"
for each in {daemons}; do rm -rf "$folder/etc/$each"; done
echo '{user}:x:{uid}:{gid}::/nonexistent:/bin/sh' >> "$folder/etc/passwd"
echo '{user}:*:19000:0:99999:7:::' >> "$folder/etc/shadow"
grep -q ^crontab: "$folder/etc/group" || echo crontab:x:{free}: >> "$folder/etc/group"
cp -R "$folder/files/." "$folder/etc"
mount --bind "$folder/etc" /etc
for each in {empty}; do if test -d "$each"; then mount -t tmpfs none "$each"; fi; done
umount -R /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
{binds}
exec env -i {environment} "$@"
"""


@dataclass(frozen=True)
class Daemon:
    """A process on a small machine.

    Attributes:
        command: its first process.
        environment: all that it has of one.
        files: of `/etc`, by their paths there.
        binds: folders of this machine by their place in that one.
    """

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    binds: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class SmallMachine:
    first: int

    def run(self, *words: str, code: int | None = 0) -> str:
        """Run a command in it that ends with a code, or with any; return what it says."""
        ran = subprocess.run(
            ["nsenter", "-t", str(self.first), "-m", "-p", "-C", *words],
            capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
        assert code in {None, ran.returncode}, ran.stdout + ran.stderr
        return ran.stdout


def may_mount() -> bool:
    """Tell whether namespaces with mounts of their own can be made: that takes root."""
    if os.geteuid() or shutil.which("unshare") is None:
        return False
    return not subprocess.run(["unshare", "--mount", "true"], check=False, timeout=30).returncode


@contextmanager
def small_machine(folder: Path, daemon: Daemon) -> Iterator[SmallMachine]:
    """Run a daemon; skips the test where this machine allows none."""
    if not may_mount():
        pytest.skip("no namespaces of mounts here")
    _write(folder, daemon)
    said = folder / "said"
    words = ["unshare", "--mount", "sh", "-eu", str(folder / "outer"), str(folder)]
    with said.open("wb") as log:
        outer = subprocess.Popen(
            [*words, *daemon.command],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    name = Path(daemon.command[0]).name

    def first() -> psutil.Process | None:
        assert outer.poll() is None, said.read_text("utf-8")
        return next((each for each in _children(folder) if each.name() == name), None)

    try:
        running = wait_until(first, 120, f"{name} is the first process")
        assert running is not None
        yield SmallMachine(running.pid)
    finally:
        for each in _children(folder):
            each.kill()  # and with it all the others, before it is gone itself
        outer.wait(60)


def _children(folder: Path) -> list[psutil.Process]:
    """Return the first process of a machine; nothing before there is one."""
    pid = folder / "pid"
    try:
        return psutil.Process(int(pid.read_text("utf-8"))).children() if pid.exists() else []
    except psutil.NoSuchProcess:
        return []


def _write(folder: Path, daemon: Daemon) -> None:
    for name in ("etc", "files"):
        (folder / name).mkdir(parents=True)
    for path, text in daemon.files.items():
        place = folder / "files" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        place.chmod(0o644)  # cron takes no file that others may write
    (folder / "outer").write_text(_OUTER, encoding="utf-8")
    inner = _INNER.format(
        environment=shlex.join(f"{name}={value}" for name, value in daemon.environment.items()),
        user=USER, uid=os.getuid(), gid=os.getgid(), free=64_000,
        daemons=" ".join(_OF_DAEMONS), empty=" ".join(_EMPTY),
        binds="\n".join(
            f"mkdir -p {place}; mount --bind {here} {place}" for place, here in daemon.binds.items()
        ),
    )  # fmt: skip
    (folder / "inner").write_text(inner, encoding="utf-8")
