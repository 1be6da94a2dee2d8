"""Unpack archives: nothing outside the target, all of it or nothing."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from changelog.contract.base.errors import StackError

_EXECUTABLE = 0o111


def unpack(archive: Path, target: Path, *, inner: str = "") -> Path:
    """Unpack a tar or zip into `target` unless that is there already; return `target`.

    The work is done beside `target`, which then appears by one rename: a target that exists is
    whole. Devices, names that lead out of the target, and links to anything but a neighbour in the
    same directory (as libraries have for their versions) are refused. `inner` is the name of a tar
    in the zip `archive`; it alone is unpacked.
    """
    if target.is_dir():
        return target
    with _building(target) as build:
        if inner:
            with zipfile.ZipFile(archive) as content, content.open(inner) as packed:
                _unpack_tar(archive, build, packed)
        elif archive.name.endswith(".zip"):
            _unpack_zip(archive, build)
        else:
            _unpack_tar(archive, build)
    return target


@contextmanager
def _building(target: Path) -> Iterator[Path]:
    target.parent.mkdir(parents=True, exist_ok=True)
    build = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        build.chmod(0o755)
        yield build
        for path in build.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        _publish(build, target)
    finally:
        shutil.rmtree(build, ignore_errors=True)


def _publish(build: Path, target: Path) -> None:
    try:
        build.rename(target)
    except OSError:
        if not target.is_dir():  # else another process was faster: its copy is as good
            raise


def _unpack_tar(archive: Path, build: Path, packed: IO[bytes] | None = None) -> None:
    with tarfile.open(archive, fileobj=packed) as tar:
        for member in tar:
            if member.isdir():
                _inside(archive, build, member.name).mkdir(parents=True, exist_ok=True)
                continue
            if member.issym() and _is_neighbour(member.linkname):
                link = _inside(archive, build, member.name)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(member.linkname)
                continue
            source = tar.extractfile(member) if member.isfile() else None
            if source is None:
                raise StackError(f"{archive.name} holds {member.name!r}, which is no plain file")
            with source:
                _write(archive, build, member.name, source, member.mode)


def _is_neighbour(link: str) -> bool:
    return link not in {"", ".", ".."} and "/" not in link


def _unpack_zip(archive: Path, build: Path) -> None:
    with zipfile.ZipFile(archive) as content:
        for entry in content.infolist():
            if entry.is_dir():
                _inside(archive, build, entry.filename).mkdir(parents=True, exist_ok=True)
                continue
            with content.open(entry) as source:
                _write(archive, build, entry.filename, source, entry.external_attr >> 16)


def _write(archive: Path, build: Path, name: str, source: IO[bytes], mode: int) -> None:
    target = _inside(archive, build, name)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as sink:
        shutil.copyfileobj(source, sink, 1 << 20)
    target.chmod(0o755 if mode & _EXECUTABLE else 0o644)


def _inside(archive: Path, build: Path, name: str) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise StackError(f"{archive.name} holds {name!r}, which leads out of its directory")
    return build / path


def copy_tree(source: Path, target: Path) -> Path:
    """Copy a directory to `target`, readable by all, unless that is there already."""
    if target.is_dir():
        return target
    with _building(target) as build:
        shutil.copytree(source, build, symlinks=True, dirs_exist_ok=True)
        for path in build.rglob("*"):
            if path.is_file() and not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & _EXECUTABLE else 0o644)
    return target
