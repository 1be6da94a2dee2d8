"""Start and stop several servers at once, in the order that they need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from changelog.stack.servers.server import Server


def start_all(
    servers: Mapping[str, Server], absent: Sequence[Server], say: Callable[[str], None]
) -> None:
    """Start all at once, except that the registry waits for its database.

    The first failure stops the `absent` ones, so that no other start is waited for in vain.
    """

    def start(names: Iterable[str]) -> None:
        for name in names:
            seconds = servers[name].start()
            if servers[name] in absent:
                say(f"{name}: ready in {seconds:.1f} s")

    chains: list[tuple[str, ...]] = [("postgres", "registry")]
    chains += [(name,) for name in servers if name not in chains[0]]
    with ThreadPoolExecutor(len(chains), thread_name_prefix="stack") as pool:
        futures = [pool.submit(start, chain) for chain in chains]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        except BaseException:
            stop_all(absent)
            raise


def stop_all(servers: Sequence[Server]) -> None:
    """Stop the servers at once, except that PostgreSQL waits for the registry."""
    others = [server for server in servers if server.name != "postgres"]
    with ThreadPoolExecutor(max(1, len(others)), thread_name_prefix="stack") as pool:
        for _ in pool.map(lambda server: server.stop(), others):
            pass
    for server in servers:
        if server.name == "postgres":
            server.stop()
