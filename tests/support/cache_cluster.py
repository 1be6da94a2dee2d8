"""A real cluster: three primaries that share the slots, on ports of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import redis

from changelog.stack.base.ports import LOOPBACK, pick
from changelog.stack.base.process import Launch
from changelog.stack.servers.cache import CacheServer
from tests.support.wait import wait_until

_SLOTS = 16_384
_SERVERS = 3


class ClusterServer(CacheServer):
    """One server of a cluster; a port more is for what they say to each other."""

    def launch(self) -> Launch:
        """Run valkey-server as a part of a cluster."""
        honest = super().launch()
        more = ["--cluster-enabled", "yes", "--cluster-port", str(pick())]
        return replace(honest, argv=[*honest.argv, *more])


@contextmanager
def cache_cluster(folder: Path) -> Iterator[str]:
    """Start a cluster; its address is that of one of its servers."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(ClusterServer(folder / str(n), pick())) for n in range(_SERVERS)
        ]
        clients = [
            stack.enter_context(closing(redis.Redis.from_url(server.url, decode_responses=True)))
            for server in servers
        ]
        bounds = [_SLOTS * n // _SERVERS for n in range(_SERVERS + 1)]
        for client, first, end in zip(clients, bounds, bounds[1:], strict=False):
            client.execute_command("CLUSTER ADDSLOTSRANGE", first, end - 1)
        for server, client in zip(servers, clients, strict=True):
            bus = client.config_get("cluster-port")["cluster-port"]
            clients[0].execute_command("CLUSTER MEET", LOOPBACK, server.port, bus)
        for client in clients:
            wait_until(lambda client=client: _whole(client), 60, "the cluster is whole")  # type: ignore[misc]
        yield f"redis+cluster://{LOOPBACK}:{servers[0].port}"


def _whole(client: redis.Redis) -> bool:
    told: Any = client.execute_command("CLUSTER INFO")
    return (told["cluster_state"], told["cluster_known_nodes"]) == ("ok", str(_SERVERS))
