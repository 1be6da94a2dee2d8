"""A headless Chromium for tests, and axe: from npm, pinned, fetched once into the cache.

Chromium comes with the libraries that a server's machine lacks, so no one has to install it.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock
from playwright.sync_api import Browser, sync_playwright

from changelog.stack.base.places import cache_dir

CHROMIUM = ("@sparticuz/chromium", "147.0.0", "4ZKeAQQa8up2mt675qSitztLdbQrlf8BKdC5naeap+5Mv1OV1OlJdPoU+EJC/p5sQUJUQmN4r+q5+EhaaOUHpQ==")  # fmt: skip  # noqa: E501
AXE = ("axe-core", "4.14.1", "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==")  # fmt: skip  # noqa: E501
_PARTS = ("al2023.tar", "fonts.tar", "swiftshader.tar", "chromium")
_UNPACK = """
const fs = require("fs"), zlib = require("zlib");
const [from, to] = process.argv.slice(1);
fs.writeFileSync(to, zlib.brotliDecompressSync(fs.readFileSync(from)));
"""
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{folder}/fonts</dir><cachedir>{folder}/font-cache</cachedir></fontconfig>
"""
_ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


@contextmanager
def chromium() -> Iterator[Browser]:
    folder = _folder("chromium", CHROMIUM, _unpack_chromium)
    env: dict[str, str | float | bool] = {
        **os.environ,
        "LD_LIBRARY_PATH": f"{folder}/lib:{folder}",
        "FONTCONFIG_FILE": f"{folder}/fonts.conf",
    }
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=folder / "chromium", args=[*_ARGUMENTS], env=env
        )
        try:
            yield browser
        finally:
            browser.close()


def axe() -> str:
    """Return the script that looks for what keeps people out of a page."""
    folder = _folder("axe", AXE, _unpack_axe)
    return (folder / "axe.min.js").read_text("utf-8")


def _folder(name: str, pin: tuple[str, str, str], unpack) -> Path:
    """Return where a package is unpacked, fetching it if it is not there."""
    store = cache_dir() / "browser"
    store.mkdir(parents=True, exist_ok=True)
    folder = store / f"{name}-{pin[1]}"
    with FileLock(store / ".lock"):
        if not folder.is_dir():
            made = store / f"{name}.part"
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir()
            unpack(_fetched(store, pin), made, folder)
            made.rename(folder)
    return folder


def _fetched(store: Path, pin: tuple[str, str, str]) -> Path:
    package, version, wanted = pin
    ran = subprocess.run(
        ["npm", "pack", f"{package}@{version}", "--silent", "--pack-destination", str(store)],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    path = store / ran.stdout.strip().splitlines()[-1]
    found = base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()
    assert found == wanted, f"{package} {version} is not what was pinned: {found}"
    return path


def _unpack_chromium(package: Path, into: Path, folder: Path) -> None:
    with tarfile.open(package) as archive:
        archive.extractall(into, filter="data")
    for part in _PARTS:
        source = into / "package" / "bin" / f"{part}.br"
        subprocess.run(["node", "-e", _UNPACK, str(source), str(into / part)], check=True)
        if part.endswith(".tar"):
            with tarfile.open(into / part) as archive:
                archive.extractall(into, filter="data")
            (into / part).unlink()
    (into / "chromium").chmod(0o755)
    (into / "fonts.conf").write_text(_FONTS.format(folder=folder), encoding="utf-8")
    shutil.rmtree(into / "package")
    package.unlink()


def _unpack_axe(package: Path, into: Path, folder: Path) -> None:
    with tarfile.open(package) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        (into / "axe.min.js").write_bytes(member.read())
    package.unlink()
