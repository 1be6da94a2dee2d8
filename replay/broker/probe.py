"""Probe a topic by reading a few records: after a frontier's ends, and for its density.

A client cannot ask how far the broker's cleaner has come; it can only ask where a log starts, and
which records are still there. The first record after a frontier's end says from when on the cleaner
may have removed one before it; the gaps between records say how much it has removed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, Message, TopicPartition

from changelog.contract.base.connection import KafkaConnection
from changelog.contract.base.errors import UnavailableLogError
from changelog.contract.log.frontier import Frontier
from changelog.kafka.clients import REQUEST_S, STALL_S, lent, reading_consumer
from changelog.kafka.errors import explained, log_error
from changelog.runtime.progress.steps import UNSEEN, Steps
from replay.broker.density import POINTS, Density, Stratum, strata_of
from replay.broker.splits import doubtful
from replay.broker.topic_state import AfterEnds, TopicState

# A probe needs a few records of each place: more would only be thrown away.
_FETCH_BYTES = 32 << 10
_BACKOFF_MS = 5
# Sampled at the start of each stratum.
_RECORDS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A place in a partition at which to read."""

    topic: str
    partition: int
    start: int  # the first offset to read
    stop: int | None = None  # the first one not to read; None without a limit
    # epoch of the leader that `start` was read from; with it the client asks the present leader
    # whether it has all records before (OffsetForLeaderEpoch, KIP-320)
    epoch: int | None = None

    def to_client(self) -> TopicPartition:
        if self.epoch is None:
            return TopicPartition(self.topic, self.partition, self.start)
        return TopicPartition(self.topic, self.partition, self.start, leader_epoch=self.epoch)


@dataclass(slots=True)
class _Answer:
    records: list[Message] = field(default_factory=list)
    is_truncated: bool = False


class _Probe:
    """One consumer for all places; each partition is left as soon as it has answered."""

    def __init__(self, kafka: KafkaConnection) -> None:
        self._kafka = kafka
        # Uncommitted records too: a transaction that is open now may be committed during the scan,
        # and for the cleaner its records then count from when they were appended.
        self._consumer = reading_consumer(
            kafka,
            committed=False,
            # With one message queued the client stops fetching, by default for a whole second.
            fetch_queue_backoff_ms=_BACKOFF_MS,
            fetch_message_max_bytes=_FETCH_BYTES,
            queued_min_messages=1,
        )
        self._topics: set[str] = set()  # whose leaders the client knows

    def close(self) -> None:
        """Leave the brokers."""
        self._consumer.close()

    def read(self, places: Sequence[_Place], count: int, steps: Steps = UNSEEN) -> list[_Answer]:
        """Read at most `count` records from each place on, at most one place a partition."""
        answers = {(place.topic, place.partition): _Answer() for place in places}
        remaining = {(place.topic, place.partition): place for place in places}
        if not remaining:
            return []
        with explained(kafka=self._kafka):
            self._ask_for_leaders({place.topic for place in places})
            self._consumer.assign([place.to_client() for place in places])
            while remaining:
                message = self._next(remaining)
                at = (message.topic() or "", message.partition() or 0)
                if at in remaining and self._is_done(message, remaining[at], answers[at], count):
                    del remaining[at]
                    self._consumer.pause([TopicPartition(*at)])
                    steps.done()
            # librdkafka keeps a partition paused even when it is assigned again.
            self._consumer.resume([place.to_client() for place in places])
            self._consumer.unassign()
        return list(answers.values())

    def _ask_for_leaders(self, topics: set[str]) -> None:
        """Ask who leads topics: a client that has others waits a second before it does so."""
        for topic in sorted(topics - self._topics):
            self._consumer.list_topics(topic, timeout=REQUEST_S)
        self._topics |= topics

    def _next(self, remaining: Mapping[tuple[str, int], _Place]) -> Message:
        message = self._consumer.poll(STALL_S)
        if message is None:
            topic, partition = min(remaining)
            raise UnavailableLogError(
                f'topic "{topic}", partition {partition} cannot be read: no answer in '
                f"{STALL_S:.0f} s"
            )
        return message

    def _is_done(self, message: Message, place: _Place, answer: _Answer, count: int) -> bool:
        error = message.error()
        if error is None:
            offset = message.offset() or 0
            if place.stop is not None and offset >= place.stop:
                return True
            answer.records.append(message)
            return len(answer.records) >= count or offset + 1 == place.stop
        if error.code() == KafkaError._PARTITION_EOF:
            return True
        if error.code() == KafkaError._AUTO_OFFSET_RESET and "truncat" in error.str():
            answer.is_truncated = True
            return True
        raise log_error(error, f'topic "{place.topic}", partition {place.partition} cannot be read')


def read_after_ends(
    kafka: KafkaConnection, frontier: Frontier, states: Mapping[str, TopicState]
) -> dict[str, AfterEnds]:
    """Read the first record after a frontier's ends in each topic that the frontier knows.

    Reads at most one record of each partition, and none where nothing was added.

    Raises UnavailableLogError: the brokers do not answer; LogError: they refuse.
    """
    known_topics = {
        topic: state
        for topic, state in states.items()
        if len(frontier.ends.get(topic, ())) == state.partitions
        and frontier.topic_ids.get(topic) == state.topic_id
    }
    places = [
        place
        for topic, state in known_topics.items()
        for partition in range(state.partitions)
        if (place := _place_after(frontier, state, partition)) is not None
    ]
    if not places:
        return {
            topic: AfterEnds(first_ms=(None,) * state.partitions)
            for topic, state in known_topics.items()
        }
    with lent(kafka, "records behind a frontier", lambda: _Probe(kafka)) as probe:
        answers = probe.read(places, 1)
    answer_at = {(p.topic, p.partition): answer for p, answer in zip(places, answers, strict=True)}
    return {
        topic: _after_ends(answer_at, topic, state.partitions)
        for topic, state in known_topics.items()
    }


def _place_after(frontier: Frontier, state: TopicState, partition: int) -> _Place | None:
    """Return the place at a frontier's end; None if there is nothing to read from there on."""
    end, now = frontier.ends[state.topic][partition], state.ends[partition]
    epochs = frontier.leader_epochs.get(state.topic, ())
    epoch = epochs[partition] if partition < len(epochs) else -1
    has_moved = end > 0 and epoch >= 0 and epoch != state.leader_epochs[partition]
    is_gone = now < end or end < state.log_starts[partition]
    if is_gone or (now == end and not has_moved):
        return None
    return _Place(
        topic=state.topic, partition=partition, start=end, epoch=epoch if has_moved else None
    )


def _after_ends(
    answer_at: Mapping[tuple[str, int], _Answer], topic: str, partitions: int
) -> AfterEnds:
    answers = [answer_at.get((topic, partition), _Answer()) for partition in range(partitions)]
    return AfterEnds(
        first_ms=tuple(
            answer.records[0].timestamp()[1] if answer.records else None for answer in answers
        ),
        truncated=tuple(n for n, answer in enumerate(answers) if answer.is_truncated),
    )


def sample_density(
    kafka: KafkaConnection,
    ranges: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]],
    *,
    points: int = POINTS,
    steps: Steps = UNSEEN,
) -> dict[str, Density]:
    """Sample how many records there are for each offset.

    `ranges`: per topic the start and the end offset of each partition. `points`: how many strata of
    each partition are sampled, evenly spread.

    Raises UnavailableLogError: the brokers do not answer; LogError: they refuse.
    """
    planned = {
        (topic, partition): strata_of(start, end, points)
        for topic, (starts, ends) in ranges.items()
        for partition, (start, end) in enumerate(zip(starts, ends, strict=True))
    }
    steps.more(sum(map(len, planned.values())))
    steps.begin("records here and there")
    with closing(_Probe(kafka)) as probe:
        measured = _measured(probe, planned, steps)
    return {
        topic: Density(tuple(tuple(measured[topic, n]) for n in range(len(starts))))
        for topic, (starts, _) in ranges.items()
    }


def refine_density(
    kafka: KafkaConnection, topic: str, density: Density, *, tasks: int, rounds: int = 10
) -> Density:
    """Sample again where cuts between this number of tasks are uncertain (`replay.broker.splits`).

    Raises UnavailableLogError: the brokers do not answer; LogError: they refuse.
    """
    partitions = [list(strata) for strata in density.strata]
    with closing(_Probe(kafka)) as probe:
        for _ in range(rounds):
            share = sum(stratum.records for strata in partitions for stratum in strata) / tasks
            halves = {
                (topic, partition): [
                    half
                    for number in doubtful(strata, share)
                    for half in strata_of(strata[number].start, strata[number].end, 2)
                ]
                for partition, strata in enumerate(partitions)
            }
            if not any(halves.values()):
                break
            for (_, partition), sampled in _measured(probe, halves).items():
                covered = {half.start for half in sampled} | {half.end for half in sampled}
                rest = [
                    stratum for stratum in partitions[partition] if not _is_cut(stratum, covered)
                ]
                partitions[partition] = sorted([*rest, *sampled], key=lambda stratum: stratum.start)
    return Density(tuple(tuple(strata) for strata in partitions))


def _is_cut(stratum: Stratum, bounds: Collection[int]) -> bool:
    return any(stratum.start < bound < stratum.end for bound in bounds)


def _measured(
    probe: _Probe,
    planned: Mapping[tuple[str, int], Sequence[tuple[int, int]]],
    steps: Steps = UNSEEN,
) -> dict[tuple[str, int], list[Stratum]]:
    """Estimate the records of ranges from the first ones of each."""
    measured: dict[tuple[str, int], list[Stratum]] = {at: [] for at in planned}
    for number in range(max(map(len, planned.values()), default=0)):
        places = [
            _Place(topic=at[0], partition=at[1], start=pieces[number][0], stop=pieces[number][1])
            for at, pieces in planned.items()
            if number < len(pieces)
        ]
        for place, answer in zip(places, probe.read(places, _RECORDS, steps), strict=True):
            offsets = [record.offset() or 0 for record in answer.records]
            end = place.stop or place.start
            stratum = Stratum.measured(place.start, end, offsets, is_whole=len(offsets) < _RECORDS)
            measured[place.topic, place.partition].append(stratum)
    return measured
