"""Workers of `changelog serve` as processes, and how a test asks them."""

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from changelog.stack.base.state import Endpoints

DEADLINE_S = 120


@contextmanager
def running(
    endpoints: Endpoints, group: str, *words: str, env: Mapping[str, str] | None = None
) -> Iterator[tuple[str, "subprocess.Popen[str]", list[str]]]:
    """Run a worker; gives its address, its process, and what it says."""
    command = [sys.executable, "-m", "tests.support.connect_worker", "serve", "--port", "0"]
    command += ["--broker", endpoints.brokers, "--schema-registry", endpoints.schema_registry]
    command += ["--group", group, *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
    lines, said = process.stderr, list[str]()
    assert lines is not None
    found = None
    for line in lines:
        said.append(line)
        if found := re.search(r"serving on (\S+)", line):
            break
    assert found, "".join(said)
    reader = threading.Thread(target=lambda: said.extend(lines))
    reader.start()
    try:
        yield found[1], process, said
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE_S)
        reader.join()
        lines.close()


def curl(method: str, url: str, body: object = None, *words: str) -> tuple[int, Any, str]:
    """Ask as a script does; returns code, body and place."""
    command = ["curl", "-sS", "-X", method, "-w", "\n%{http_code} %header{location}", *words]
    if body is not None:
        command += ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
    ran = subprocess.run([*command, url], capture_output=True, text=True, check=True, timeout=60)
    text, _, last = ran.stdout.rpartition("\n")
    code, _, location = last.partition(" ")
    return int(code), json.loads(text) if text else None, location


def states(url: str, name: str) -> list[str]:
    said = httpx.get(f"{url}/connectors/{name}/status").json()
    return [each["state"] for each in said["tasks"]]
