"""Builds a view, as far as its locks go, and publishes it: into a file that names the generation.

Usage: python -m tests.support.lease_holder ROOT BROKERS TOPIC TTL GENERATION [--unfenced]

Prints `held` once it has the locks, publishes when a line comes in, and ends as a rebuild would.
"""

import sys
from pathlib import Path
from typing import Any

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import ChangelogError
from views.generations.lock import Moving, building, reserve
from views.generations.place import LockPlace, folder_of
from views.generations.served import Served
from views.generations.swap import swap
from views.leases.leases import Leases, place_of
from views.leases.topic import LeaseTopic

VIEW, SERVES = "v", "serves.txt"


class FileSink:
    def __init__(self, path):
        self._path = path

    def published(self):
        return int(self._path.read_text()) if self._path.exists() else None

    def publish(self, generation):
        self._path.write_text(str(generation))


def place_at(root, brokers, topic, ttl):
    """Return where the locks of a project in a folder are; all share one warehouse."""
    kafka = KafkaConnection(brokers=brokers)
    leases = Leases(
        lambda: LeaseTopic(kafka, topic), ttl_s=float(ttl), place=place_of(folder_of(Path(root)))
    )
    return LockPlace(Path(root), leases, lambda: "warehouse")


def main():
    root, brokers, topic, ttl, generation, *options = sys.argv[1:]
    place = place_at(root, brokers, topic, ttl)
    sinks: Any = {"file": FileSink(Path(root).parent / SERVES)}
    confirm = (lambda: None) if options else place.confirm
    try:
        with building(place, [VIEW]):
            reserve(place, VIEW, [int(generation)])
            with Moving(place, [VIEW], lambda: False):
                print("held", flush=True)
                sys.stdin.readline()
                swap([(Served(VIEW, sinks), int(generation))], confirm=confirm)
                print("published", flush=True)
    except ChangelogError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
