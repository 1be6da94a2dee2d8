"""Runs `rebuild-view` and stops it at a named stage; seeds a defect when asked to.

Usage: python -m tests.support.crashing_rebuild [--kill STAGE[:TIMES]] [--armed FILE]
       [--pause STAGE] [--defect NAME] -- OPTIONS OF rebuild-view

`--kill` ends the process by SIGKILL just before a stage, or at a moment in which a sink goes
forward, such as `within cache` (`tell_of_sinks`); with `--armed` not before that file is there.
`--pause` prints `at STAGE` and goes on when a line comes in.
"""

import argparse
import os
import signal
import sys
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

from pyspark import TaskContext, cloudpickle

from changelog.contract.base.headers import POSITION
from changelog.kafka.clients import reading_consumer
from replay.base import failures
from replay.scan import scan, task
from replay.spark import server_look
from replay.store.advancer import Advancer
from tests.support import fold_records
from tests.support.fold_records import add_records
from tests.support.odd_parts import ForgettingJob, SkippingJob, WaitingJob, have
from views import cli, command
from views.base.progress import Stages
from views.generations.served import Served, served_of
from views.rebuild import rebuild, resident
from views.rebuild.one_view import refresh
from views.sinks.cache import forward as cache_forward
from views.sinks.cache.sink import CacheSink
from views.sinks.postgres.forward import PostgresForward
from views.sinks.postgres.registry import GenerationRegistry
from views.sinks.postgres.sink import PostgresSink
from views.sinks.search.progress import ProgressIndex
from views.sinks.search.server import SearchClient
from views.sinks.search.sink import SearchSink
from views.sinks.topic import register as topic_forward
from views.sinks.topic.sink import TopicSink
from views.verify.kept.folder import KeptTopic


class PublishesOnSeal:
    """A sink that lets readers see a generation before it is verified."""

    def __init__(self, sink):
        self._sink = sink

    def __getattr__(self, name):
        return getattr(self._sink, name)

    def seal(self):
        address = self._sink.seal()
        generation = max(self._sink.generations())
        self._sink.publish(generation)
        return address


def publish_early():
    """Swap each sink as soon as it is written."""

    def early(spec, project, spark):
        served = served_of(spec, project, spark)
        return Served(spec.name, {n: PublishesOnSeal(s) for n, s in served.sinks.items()})

    command.RebuildRun = partial(rebuild.RebuildRun, make_served=early)


def forget_to_settle():
    """Begin without looking at what a killed run left."""
    rebuild.settle = lambda *_: None


def seal_before_the_scan():
    """Let a checkpoint count at the new frontier before what lies between is read."""
    sound = Advancer.advance

    def early(self, plan, schemas):
        for step in plan.steps.values():
            if step.checkpoint is not None:
                base = replace(step.checkpoint.base, record=plan.record)
                self.store.seal(replace(step.checkpoint, base=base), step.manifest, [])
        return sound(self, plan, schemas)

    Advancer.advance = early


def forget_what_serves():
    """Make a generation of each frontier that is seen, also of one that serves already."""
    sound = refresh.Refresher.rows

    def again(self, *arguments):
        found = sound(self, *arguments)
        return refresh.WholeRefresh("seeded") if isinstance(found, refresh.UnchangedView) else found

    refresh.Refresher.rows = again


def arrival_decides():
    """Let the record that arrived last decide about a key, whatever its position."""

    def read_into(last, kafka, topic, part):
        from confluent_kafka import TopicPartition  # which cannot travel

        newest = b""

        def never_going_back(record):
            nonlocal newest
            newest = max(newest, dict(record.headers())[POSITION])
            return newest

        with closing(reading_consumer(kafka)) as consumer:
            consumer.assign([TopicPartition(topic, part.partition, part.start)])
            following = part.start
            while following < part.end:
                records = []
                for each in consumer.consume(500, 0.1):
                    offset = each.offset() or 0
                    following = max(following, offset + (each.error() is None))
                    if each.error() is None and offset < part.end:
                        records.append(each)
                add_records(last, records, position_of=never_going_back)

    def by_arrival(job, numbers):
        task.read_into = read_into  # where the task runs
        return task.run(job, numbers)

    cloudpickle.register_pickle_by_value(fold_records)  # an executor has no tests
    scan.run = by_arrival


def lose_what_is_lost():
    """Return nothing for what a task has to do again."""

    def first_attempt(job, numbers):
        running = TaskContext.get()
        is_first = running is None or running.attemptNumber() == 0
        return task.run(job, numbers) if is_first else iter(())

    scan.run = first_attempt


def hear_the_first_line():
    """Know of an error what its first line says."""
    failures._whole_text = lambda error: str(error).strip().partition("\n")[0]


def take_settings_on_trust():
    """Believe that a server was started with whatever a session cannot change."""
    sound = server_look._apply_settings

    def trusting(spark, wanted):
        sound(spark, wanted)
        return []

    server_look._apply_settings = trusting


def cancel_nothing():
    """Wait for the jobs of a run that was asked to stop."""
    command.cancel_jobs = lambda: None


def keep_the_session():
    """Leave a session on its server to the server."""
    command.release = lambda: None


def die_sealing():
    """End between the files of a kept state and its manifest; no defect of the program."""
    KeptTopic.seal = lambda *_: os.kill(os.getpid(), signal.SIGKILL)


def die_in_the_switch():
    """End when one sink has moved and the cache has not; no defect of the program."""
    CacheSink.publish = lambda *_: os.kill(os.getpid(), signal.SIGKILL)


def forward_in_halves():
    """Let readers of a table have a delta in two steps."""
    sound = PostgresForward.apply

    def apart(self, cursor, delta, position):
        half = delta.num_rows // 2
        sound(self, cursor, delta.slice(0, half), position)
        cursor.connection.commit()
        sound(self, cursor, delta.slice(half), position)

    PostgresForward.apply = apart


def place_before_the_rows():
    """Note where a table is before it has the rows."""
    sound = PostgresSink.apply

    def early(self, generation, schema, delta, position):
        sound(self, generation, schema, delta.slice(0, 0), position)
        sound(self, generation, schema, delta, position)

    PostgresSink.apply = early


def tell_of_sinks(told):
    """Tell of the moments in which a sink goes forward.

    `before KIND` and `behind KIND`; `within KIND` when rows are sent and no reader has them yet;
    `shown search` when searchers have them and the index does not say so yet.
    """
    kinds = {"search": SearchSink, "cache": CacheSink, "postgres": PostgresSink, "topic": TopicSink}
    for kind, sink in kinds.items():
        sink.apply = _between(told, kind, sink.apply)

    request = SearchClient.request

    def asked(self, method, path, body=None):
        if path.endswith("/_refresh"):
            told("within search")
        return request(self, method, path, body)

    SearchClient.request = asked
    ProgressIndex.write = _first(partial(told, "shown search"), ProgressIndex.write)
    for place, name, kind in (
        (cache_forward, "set_entries", "cache"),
        (GenerationRegistry, "note_forward", "postgres"),
        (topic_forward, "write_frontier", "topic"),
    ):
        setattr(place, name, _first(partial(told, f"within {kind}"), getattr(place, name)))


def _between(told, kind, sound):
    def apply(self, *arguments):
        told(f"before {kind}")
        sound(self, *arguments)
        told(f"behind {kind}")

    return apply


def _first(told, sound):
    def called(*arguments, **named):
        told()
        return sound(*arguments, **named)

    return called


DEFECTS = {
    "forget_parts": lambda: have(ForgettingJob),
    "skip_in_parts": lambda: have(SkippingJob),
    "wait_in_parts": lambda: have(WaitingJob),
    "arrival_decides": arrival_decides,
    "cancel_nothing": cancel_nothing,
    "die_in_the_switch": die_in_the_switch,
    "die_sealing": die_sealing,
    "forget_to_settle": forget_to_settle,
    "forget_what_serves": forget_what_serves,
    "forward_in_halves": forward_in_halves,
    "hear_the_first_line": hear_the_first_line,
    "keep_the_session": keep_the_session,
    "lose_what_is_lost": lose_what_is_lost,
    "place_before_the_rows": place_before_the_rows,
    "publish_early": publish_early,
    "seal_before_the_scan": seal_before_the_scan,
    "take_settings_on_trust": take_settings_on_trust,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kill", default="")
    parser.add_argument("--armed", type=Path)
    parser.add_argument("--pause")
    parser.add_argument("--defect", choices=DEFECTS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    asked = parser.parse_args()

    doomed, _, times = asked.kill.partition(":")
    left = [int(times or 1)]

    def told(moment):
        if moment == doomed and (asked.armed is None or asked.armed.exists()):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    def before(stage):
        told(stage)
        if stage == asked.pause:
            print(f"at {stage}", file=sys.stderr, flush=True)
            sys.stdin.readline()

    command.Stages = partial(Stages, before=before)
    if asked.defect:
        DEFECTS[asked.defect]()
    if " " in doomed:
        tell_of_sinks(told)
    if doomed == "record":
        resident.RECORDED_EVERY = timedelta(0)  # else a minute passes before it
    sys.argv = ["rebuild-view", *(a for a in asked.arguments if a != "--")]
    cli.main()


if __name__ == "__main__":
    main()
