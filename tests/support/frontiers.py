"""Every frontier that stands on the log, and whether each of them is exact."""

from changelog.contract.base.position import Position
from changelog.contract.log.frontier import Frontier
from changelog.contract.log.topic import frontier_topic
from changelog.kafka.scan import OffsetRange, scan
from changelog.sink.frontier import FrontierLog


def frontiers_of(capture):
    topic = frontier_topic(capture.prefix)
    with FrontierLog(capture.kafka, topic) as log:
        (end,) = log.ends([topic])[topic]
    found = scan(capture.kafka, [OffsetRange(topic, 0, 0, end)])
    slot = capture.prefix.encode()
    return [Frontier.from_json(each.value() or b"") for each in found if each.key() == slot]


def behind_frontier(capture, table="notes"):
    """Return how many offsets of a table's topic lie behind the last frontier."""
    topic = f"{capture.prefix}.{table}"
    with FrontierLog(capture.kafka, "unused") as log:
        ends = log.ends([topic])[topic]
    return sum(ends) - sum(capture.frontier().ends[topic])


def inexact(capture, table="notes"):
    """Return the frontiers before whose ends another lies than the transactions before them."""
    topic = f"{capture.prefix}.{table}"
    records = [
        (partition, offset, headers.position)
        for partition, offset, _, _, headers in capture.log(table).records
    ]
    found = []
    for frontier in frontiers_of(capture):
        ends, limit = frontier.ends[topic], Position(frontier.epoch, frontier.lsn, 0)
        read = {(p, at) for p, at, _ in records if at < ends[p]}
        if read != {(p, at) for p, at, position in records if position < limit}:
            found.append(frontier)
    return found
