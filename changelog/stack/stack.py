"""The whole stack: which servers, on which ports, started together and recovered after a crash.

    with Stack(Path(".stack")) as stack:
        print(stack.endpoints().postgres)

`up` may be called in any state. It leaves alone what runs, recovers what crashed and starts what is
missing. Servers outlive the process that started them; only the context manager ends them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout

from changelog.contract.base.errors import ConfigurationError, LockedError, StackError
from changelog.stack.base import ports as port_choice
from changelog.stack.base.places import make_directory
from changelog.stack.base.process import wait_until
from changelog.stack.base.state import Endpoints, StackState, read_state, write_state
from changelog.stack.download.artifacts import KAFKA_JARS, OPENSEARCH, REGISTRY, Artifact
from changelog.stack.download.fetch import resolve
from changelog.stack.servers.cache import CacheServer
from changelog.stack.servers.kafka import KafkaServer
from changelog.stack.servers.postgres import PostgresServer
from changelog.stack.servers.registry import RegistryServer
from changelog.stack.servers.search import SearchServer
from changelog.stack.servers.server import Server

ALWAYS = ("postgres", "kafka", "registry")
ON_REQUEST = ("search", "cache")
_PARTS = {"brokers": "kafka", "schema_registry": "registry"}
"""The parts of endpoints with another name."""
_LISTENERS: Mapping[str, tuple[str, ...]] = {
    "postgres": ("postgres",),
    "kafka": ("kafka", "kafka_controller"),
    "registry": ("registry", "registry_management"),
    "search": ("search", "search_transport"),
    "cache": ("cache",),
}
_ARTIFACTS: Mapping[str, Sequence[Artifact]] = {
    "kafka": KAFKA_JARS,
    "registry": (REGISTRY,),
    "search": (OPENSEARCH,),
}
_LOCK_SECONDS = 180.0
_RELEASED_S = 1.0  # a port may be held for a moment after its server has ended

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PartStatus:
    """One server of a stack: `state` is ready, starting, paused, crashed or stopped."""

    name: str
    state: str
    url: str
    pid: int | None
    memory_bytes: int
    log: Path


class Stack:
    """The embedded servers of one directory."""

    def __init__(
        self,
        directory: Path,
        *,
        with_: Collection[str] = (),
        postgres_settings: Mapping[str, str] | None = None,
        postgres_version: int = 16,
        kafka_properties: Mapping[str, str] | None = None,
        ports: Mapping[str, int] | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        """Describe the stack; nothing starts yet.

        The directory is for data, logs and state; `up` makes it. `with_` names servers beside
        PostgreSQL, Kafka and registry: "search", "cache". PostgreSQL is 16 or 18, as an existing
        directory was made with. Ports are by part, such as {"postgres": 5433}; the rest is chosen
        freely. Settings, properties and options go over the defaults.
        """
        unknown = sorted({*with_} - {*ON_REQUEST}) + sorted({*(ports or {})} - {*_LISTENERS})
        if unknown:
            raise ConfigurationError(
                f"the stack has no part {unknown[0]!r}",
                hint=f"parts on request are {', '.join(ON_REQUEST)}",
            )
        self.directory = directory.absolute()
        self._with = tuple(with_)
        self._postgres_settings = postgres_settings
        self._postgres_version = postgres_version
        self._kafka_properties = kafka_properties
        self._fixed = dict(ports or {})
        self._java_options = tuple(java_options)

    def up(self, on_progress: Say | None = None) -> Endpoints:
        """Start or recover what does not run; return the endpoints when all of it is ready.

        If one server cannot be started, those that this call started are stopped again.
        """
        say = on_progress or _say_nothing
        make_directory(self.directory)
        with self._locked():
            state = self._settle_ports(say)
            servers = self._servers(state)
            absent = [server for server in servers.values() if not server.running]
            needed = [artifact for server in absent for artifact in _ARTIFACTS.get(server.name, ())]
            resolve(needed)
            for server in absent:
                if server.crashed:
                    say(f"{server.name}: ended unexpectedly, recovering")
            try:
                start_all(servers, absent, say)
            except BaseException:
                stop_all(absent)
                raise
        return _endpoints(servers)

    def down(self) -> list[str]:
        """Stop every server; return the names of the servers that ran. The data stays."""
        if not self.directory.is_dir():
            return []
        with self._locked():
            servers = [*self._servers(read_state(self.directory)).values()] or self._leftovers()
            running = [server.name for server in servers if server.running]
            stop_all(servers)
        return running

    def status(self) -> list[PartStatus]:
        """Return the status of each server that this stack has ever had."""
        return [_status(server) for server in self._servers(read_state(self.directory)).values()]

    def endpoints(self) -> Endpoints:
        """Return the endpoints of a stack; raises StackError where a part does not run."""
        servers = self._servers(read_state(self.directory))
        for name in (*ALWAYS, *servers):
            self._require(servers, name)
        return _endpoints(servers)

    def endpoint(self, name: str) -> str | None:
        """Return one of the endpoints, or None if it is of a part that was never asked for.

        `name`: of a field of `Endpoints`. A part on request may be down: its clients say so.

        Raises StackError: PostgreSQL, Kafka or the registry is asked for, and does not run.
        """
        servers, part = self._servers(read_state(self.directory)), _PARTS.get(name, name)
        if part in ON_REQUEST:
            return servers[part].url if part in servers else None
        return self._require(servers, part).url

    def _require(self, servers: Mapping[str, Server], part: str) -> Server:
        server = servers.get(part)
        if server is None or not server.running:
            raise StackError(
                f"the stack in {self.directory} does not run: no {part}",
                hint="start it with `changelog stack up`",
            )
        return server

    def server(self, name: str) -> Server:
        """Return one server, to stop, start, kill, pause or resume it on its port."""
        servers = self._servers(read_state(self.directory))
        if name not in servers:
            names = ", ".join(servers) or "none: the stack was never up"
            raise ConfigurationError(f"the stack has no part {name!r}", hint=f"its parts: {names}")
        return servers[name]

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def _leftovers(self) -> list[Server]:
        """Return the servers of a stack whose state file was lost; good for stopping only."""
        parts = tuple(part for part in _LISTENERS if (self.directory / part).is_dir())
        nowhere = {name: 0 for names in _LISTENERS.values() for name in names}
        servers = self._servers(StackState(parts, nowhere)) if parts else {}
        return [server for name, server in servers.items() if name in parts]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = FileLock(self.directory / "stack.lock")
        try:
            lock.acquire(timeout=_LOCK_SECONDS)
        except Timeout as error:
            raise LockedError(
                f"another command has worked on the stack in {self.directory}"
                f" for {_LOCK_SECONDS:.0f} s",
                hint="wait for it, or end it",
            ) from error
        try:
            yield
        finally:
            lock.release()

    def _settle_ports(self, say: Say) -> StackState:
        """Keep the ports of running servers and ports that are free; choose new ones otherwise."""
        before = read_state(self.directory)
        if not before.parts:
            stop_all(self._leftovers())
        parts = tuple(dict.fromkeys((*ALWAYS, *before.parts, *self._with)))
        servers = self._servers(before)
        chosen = dict(before.ports)
        for part in parts:
            running = _runs(servers.get(part))
            fixed = self._fixed.get(part)
            if running and fixed not in {None, chosen[part]}:
                raise StackError(
                    f"{part} runs on port {chosen[part]}, not {fixed}",
                    hint="take the stack down first",
                )
            if not running:
                chosen |= _ports_of(part, chosen, fixed, say)
        state = StackState(parts, chosen)
        write_state(self.directory, state)
        return state

    def _servers(self, state: StackState) -> dict[str, Server]:
        """Describe the servers of `state`, in the order in which they depend on each other."""
        home, ports = self.directory, state.ports
        if not state.parts:
            return {}
        postgres = PostgresServer(
            home / "postgres",
            ports["postgres"],
            version=self._postgres_version,
            settings=self._postgres_settings,
        )
        servers: list[Server] = [
            postgres,
            KafkaServer(
                home / "kafka",
                ports["kafka"],
                ports["kafka_controller"],
                properties=self._kafka_properties,
                java_options=self._java_options,
            ),
            RegistryServer(
                home / "registry", ports["registry"], ports["registry_management"], postgres
            ),
        ]
        if "search" in state.parts:
            servers.append(
                SearchServer(
                    home / "search",
                    ports["search"],
                    ports["search_transport"],
                    java_options=self._java_options,
                )
            )
        if "cache" in state.parts:
            servers.append(CacheServer(home / "cache", ports["cache"]))
        return {server.name: server for server in servers}


def _ports_of(part: str, chosen: Mapping[str, int], fixed: int | None, say: Say) -> dict[str, int]:
    ports: dict[str, int] = {}
    for listener in _LISTENERS[part]:
        port = chosen.get(listener)
        if fixed is not None and listener == part:
            ports[listener] = fixed
        elif port is not None and wait_until(partial(port_choice.is_free, port), _RELEASED_S):
            ports[listener] = port
        else:
            ports[listener] = port_choice.pick([*chosen.values(), *ports.values()])
            if port is not None:
                say(f"{listener}: port {port} is taken now, using {ports[listener]}")
    return ports


def _runs(server: Server | None) -> bool:
    return server is not None and server.running


def _endpoints(servers: Mapping[str, Server]) -> Endpoints:
    return Endpoints(
        postgres=servers["postgres"].url,
        brokers=servers["kafka"].url,
        schema_registry=servers["registry"].url,
        search=servers["search"].url if "search" in servers else None,
        cache=servers["cache"].url if "cache" in servers else None,
    )


def _status(server: Server) -> PartStatus:
    return PartStatus(
        name=server.name,
        state=server.state(),
        url=server.url,
        pid=server.pid,
        memory_bytes=server.memory_bytes(),
        log=server.log_path,
    )


def _say_nothing(line: str) -> None:
    del line


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
