"""Runs capture and ends it by SIGKILL at a named point; seeds a defect when asked to.

Usage: python -m tests.support.crashing_capture PROJECT [--kill POINT:TIMES] [--defect NAME]
       [--until now|LSN] [--at POINT:SQL] [--small]
"""

import argparse
import faulthandler
import secrets
import signal
import sys
from collections import Counter
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path

from rich.console import Console

from changelog.capture.copy import backfill, table_tasks
from changelog.capture.copy import table_task as task
from changelog.capture.loop import attempt_start, frontiers, intake, parts, schedule, session
from changelog.capture.loop.run import CaptureRun, until_lsn
from changelog.capture.rows import rules, tables
from changelog.capture.start import catalogue_watch as watch
from changelog.capture.start import decide as start
from changelog.capture.start import outlook, publishing, roster
from changelog.capture.state import rate
from changelog.capture.state.report import CaptureReport
from changelog.capture.write import (
    bulk,
    fence,
    messages,
    sequences,
    toast,
    topic_watch,
    written,
)
from changelog.config import load_project
from changelog.contract.base.lsn import Lsn
from changelog.contract.base.position import Position
from changelog.contract.log.standing import SeenStore, Standing
from changelog.contract.rows.relation import KeyIndex
from changelog.native import Records
from changelog.runtime.edge import set_up_logging, stop_on_signals
from changelog.runtime.failpoints import Failpoint
from changelog.runtime.process import silence
from changelog.sink import resume
from changelog.sink.frontier import FrontierLog
from changelog.sink.producer import LogProducer
from changelog.source.connect.connect import connect
from changelog.source.stream import merge, merged, stream
from changelog.source.stream.slot import inspect_slot
from changelog.source.tables import publication
from changelog.source.tables.catalogue import Catalogue
from tests.support.wait import wait_until


def forget_to_skip():
    """After a crash, write again what is on the log already."""
    written.Written.has = lambda *_: False
    Records.leave_out_written = lambda *_: 0


def unstable_places():
    """Send a record without a key to another partition each time."""
    written.partition_without_key = lambda _, partitions: secrets.randbelow(partitions)


def forget_since():
    """After a snapshot that was cut off, keep what it left behind alive."""
    original = FrontierLog.write
    FrontierLog.write = lambda self, frontier: original(
        self, replace(frontier, since={}, alive_from={})
    )
    backfill.write_tombstones = lambda *_, **__: 0


def deliver_each():
    """No defect: deliver each record at once, so that a kill surely leaves some on the log."""

    def flushing(original):
        def produce(self, *arguments, **named):
            original(self, *arguments, **named)
            self.flush()

        return produce

    LogProducer.produce = flushing(LogProducer.produce)
    LogProducer.produce_records = flushing(LogProducer.produce_records)


def one_by_one():
    """No defect: take each transaction by itself, and write a frontier after each."""
    intake.StreamIntake._write_bulk = lambda *_: False
    original = schedule.FrontierSchedule.advance

    def advance(self, *, idle=False):
        self._next_at = 0.0
        original(self, idle=idle)

    schedule.FrontierSchedule.advance = advance


def forget_to_flush():
    """Take the end offsets while records are still in the queue, and lose those."""
    open_, flush = LogProducer.open, LogProducer.flush

    def patient(kafka, options=None, **named):
        # Longer than the run: else the queue may be empty by luck. Frontiers have their own.
        return open_(kafka, {"linger.ms": 60_000, **(options or {})}, **named)

    def only_frontiers(self, deadline_s=None):
        if deadline_s is not None:
            flush(self, deadline_s)

    LogProducer.open = staticmethod(patient)
    LogProducer.flush = only_frontiers
    forget_foreign()  # it would miss the records


def acknowledge_early():
    """Acknowledge each transaction when it was read, before any frontier."""
    original = intake.StreamIntake._take_event
    intake.StreamIntake._write_bulk = lambda *_: False  # each transaction by itself

    def take(self, event):
        if isinstance(event, intake.Committed):
            self.schedule.stream.acknowledge(event.end_lsn)
            wait_until(lambda: _confirmed() >= event.end_lsn, 30, "the slot has moved")
        original(self, event)

    intake.StreamIntake._take_event = take


def null_for_toast():
    """Write a null for a TOAST value that the stream left out."""

    def completed(self, relation, key, row, _xid):
        return [None if field is toast.UNCHANGED else field for field in row]

    toast.Toast.completed = completed


def pause_late():
    """Write the rest of what was read before a pause holds the stream."""
    original = intake.StreamIntake._write_each
    hold = schedule.StreamPause.hold

    def write_each(self, payloads):
        schedule.StreamPause.hold = lambda _: None
        original(self, payloads)
        schedule.StreamPause.hold = hold

    intake.StreamIntake._write_each = write_each


def ignore_fork():
    """Go on over a failover, whatever the log holds."""
    start._parted = lambda *_: ""


def believe_the_server():
    """Resume at the log's frontier, whatever the server has lost."""
    outlook.why_undone = lambda *_: ""


def place_with_the_last_commit():
    """Return a message outside of a transaction the position of the commit before it."""
    deliver_each()

    def position(self, message, began):
        return Position(self.epoch, began.commit_lsn, message.sequence)

    messages.MessageLog._position = position


def forget_to_skip_messages():
    """After a crash, write the messages again that are on the log already."""
    original = messages.MessageLog.__init__

    def forgetful(self, **named):
        nothing = written.Written(named["epoch"], named["written"].partitions, {})
        original(self, **{**named, "written": nothing})

    messages.MessageLog.__init__ = forgetful


def forget_constants():
    """Take older rows to have nothing in a column that was added with a constant."""
    Catalogue.older_values = lambda *_: {}


def forget_places():
    """Take columns that have changed names with each other for the same ones."""
    tables._places_changed = lambda *_: []
    Standing.misplaced = lambda *_: []


def forget_children():
    """Leave out of frontiers which tables others inherit from."""
    table_tasks.TableTasks.inherit = lambda *_: None


def forget_newcomers():
    """Know the tables of the start alone."""
    roster.Roster._note_new = lambda _: None


def forget_touched():
    """Copy the rows that were changed while the fence was taken, as they were before."""
    fence.Recent.touched = lambda _: {}


def forget_hidden():
    """Take a fence although streamed transactions are not visible yet."""
    original = fence.Recent.look

    def look(self, snapshot, **named):
        original(self, snapshot, **named)
        return []

    fence.Recent.look = look


def believe_the_catalogue():
    """Begin copies with columns that the stream has yet to bring."""
    original = backfill.Backfill._settled

    def settled(self):
        original(self)
        return [task for task in self.tasks.active if task.since is None]

    backfill.Backfill._settled = settled


def forget_filenode():
    """Copy on although the table was rewritten."""
    backfill.Backfill._unmoved = lambda _, tasks: tasks


def forget_writers():
    """Do not look for transactions that wrote to a table before the stream began."""
    backfill.Backfill._writers = lambda *_: set()


def progress_before_copy():
    """Note chunks as done that the broker does not have."""

    def copy(self, segment, jobs, *, on_copied, **named):
        for job in jobs:
            on_copied(job, backfill.Copied(1, 1))
        return True

    backfill.CopyWorkers.copy = copy


def forget_to_compare():
    """Take every version of a table for one under which older records read right."""
    tables.CapturedTables._with_defaults = lambda _self, relation, *_: relation
    forget_to_look()


def forget_to_look():
    """Write frontiers without a look at what the catalogue says of the tables."""
    watch.CatalogueWatch.look = lambda *_: True


def forget_how_copies_began():
    """Go on with copies from the tables as they are now, in place of as they were."""
    watch.CatalogueWatch.keep = lambda *_: None
    watch.CatalogueWatch.knows = lambda *_: True


def forget_what_came_and_went():
    """Compare only what was there at both looks."""
    watch.CatalogueWatch._lost_partition = lambda *_: ""
    SeenStore.is_as_made = lambda *_: True
    original = Standing.change_since

    def change_since(self, before, truncated):
        return original(self, replace(before, key_constraint=None), truncated)

    Standing.change_since = change_since


def forget_key_index():
    """Take every index for the one that has given a table its key all the time."""
    KeyIndex.__eq__ = lambda *_: True


def forget_what_was_seen():
    """Let each life wait anew for columns that came, as if it were the first to see them."""
    original = watch.CatalogueWatch.__init__

    def begin(self, *words, **named):
        original(self, *words, **named)
        self._sighted.clear()

    watch.CatalogueWatch.__init__ = begin


def forget_the_publication():
    """Take a publication that sends a table for one that has sent it all the time."""
    publishing._unsent_meanwhile = lambda *_: set()


def skip_bad_rows():
    """Leave out what cannot be written, and let frontiers speak of the table all the same."""
    table_tasks.TableTasks.failed = lambda *_: None


def forget_to_hold():
    """Write frontiers before what lies behind the last one was sent again."""
    resume.WrittenRecords.passed_at = lambda *_: 0


def forget_to_hold_again():
    """Take values that an earlier life has fetched for those of the change."""
    toast.Toast.hold_again = lambda *_: None
    intake.StreamIntake._write_bulk = lambda *_: False  # there they are fetched once more


def believe_fetched():
    """Take what is fetched for the value at the change, whoever has written it since."""
    original = parts.fetch_columns
    parts.fetch_columns = lambda *arguments: [(row, 0) for row, _ in original(*arguments)]


def believe_aborted():
    """After a crash, take records of an aborted transaction for written."""
    original = resume.scan
    resume.scan = lambda kafka, ranges, **_: original(kafka, ranges, committed=False)


def believe_start_lsn():
    """Begin where it is asked for, whether the slot can give that or not."""

    def adopt(_name, _slot, epoch, wish):
        return start.Adopt(epoch, wish.start_lsn)

    start._first_epoch = adopt


def forget_foreign():
    """Do not look for records that others have written."""
    topic_watch.SoleWriter.foreign = lambda *_: {}
    resume._Findings._why_foreign = lambda *_: ""


def look_at_the_log_first():
    """Ask for the slot when the last frontier has been read, though both move meanwhile."""

    def look(environment):
        name = environment.settings.slot
        record = environment.frontiers.last(name)
        backfills = environment.frontiers.backfill(name)

        def moved():
            slot = inspect_slot(environment.connection, name)
            at = slot.confirmed_flush_lsn if slot is not None else None
            return slot if at is not None and at > record.frontier.lsn else None

        slot = wait_until(moved, 30, "the slot has moved on")
        return outlook.SlotStanding(record=record, backfill=backfills, slot=slot)

    outlook.standing = look
    outlook.check_idle = lambda _: None


def look_once():
    """Go on at the frontier that was found at first, whatever others have done since."""
    session.check_log_unmoved = attempt_start.check_slot_unmoved = lambda *_: None


def forget_the_other_slots():
    """Pass on what one slot brings without waiting for the others, which are slow."""

    def read(self, limit):
        return is_first(self) and original(self, limit)

    def is_first(reader):
        return reader.stream is firsts[0]

    def begin(self, streams):
        firsts.append(streams[0])
        whole(self, streams)

    def pass_on(self, into, limit):
        for lane in self.lanes[1:]:
            lane.horizon = Lsn(2**63)
        passing(self, into, limit)

    firsts: list[stream.ReplicationStream] = []
    whole, original = merged.MergedStream.__init__, merged._Reader.read
    passing = merge.Merge.pass_on
    merged.MergedStream.__init__ = begin
    merged._Reader.read = read
    merge.Merge.pass_on = pass_on


def forget_silence():
    """Wait for a server that says nothing, for ever."""
    stream.ReplicationStream._notice = lambda *_, **__: None
    silence._shut = lambda _: None


def forget_partitions():
    """Go on with the producer of before when a topic has got more partitions."""
    topic_watch.GrowthWatch.unknown = lambda _: set()


def leave_generated_out():
    """Capture as it was once: the stream brings no generated columns, and nobody says so."""
    rules.sends_stored = lambda *_, **__: False
    publication._VERSION_18 = 1_000_000
    Catalogue._generated_obstacle = lambda *_: ("", "")


def forget_losses():
    """Do not look whether topics have lost their first records."""
    outlook.losses = attempt_start.losses = lambda *_: []
    frontiers.FrontierWriter._look_for_removed = lambda *_: None


def hasty():
    """Make every time limit of ours short, so that an outage can outlast them all."""
    for module in [each for name, each in sys.modules.items() if name.startswith("changelog.")]:
        for name, seconds in (
            ("SILENCE_S", 6.0),
            ("REQUEST_S", 3.0),
            ("WRITE_S", 4.0),
            ("SAY_AFTER_S", 1.0),
            ("LONGEST_WAIT_S", 1.0),
            ("_ANSWER_S", 2),
        ):
            if hasattr(module, name):
                setattr(module, name, seconds)


def look_at_sequences_once():
    """Write at each frontier where sequences stood at the first."""
    whole = sequences.SequenceLog.__init__

    def begin(self, *, look, **more):
        whole(self, look=cache(lambda: tuple(look())), **more)

    sequences.SequenceLog.__init__ = begin


def begin_after_the_frontier():
    """Resume one byte past the last frontier, as if no commit could begin at the end of one."""
    whole = stream.ReplicationStream.open

    def begin(*words, start_lsn, **more):
        return whole(*words, start_lsn=Lsn(start_lsn + 1), **more)

    stream.ReplicationStream.open = staticmethod(begin)


def forget_to_wait():
    """Let a rate be no limit."""
    rate.Throttle.owed_s = lambda _: 0.0


def _confirmed():
    """Return where the slot stands, as the server says."""
    settings = load_project(Path(sys.argv[1]))
    with closing(connect(settings.postgres)) as connection:
        status = inspect_slot(connection, settings.slot)
        return (status.confirmed_flush_lsn if status else None) or 0


def execute(dsn, statement):
    """Run a statement in a transaction of its own."""
    with closing(connect(dsn)) as connection, connection.cursor() as cursor:
        cursor.execute(statement)


def cut_values_off():
    """Write a value that ends so without its last byte, so that nobody can decode it."""
    one_by_one()
    produce = LogProducer.produce

    def cutting(self, topic, key, value, *arguments, **named):
        whole = value is None or not value.endswith(b"cut off")
        produce(self, topic, key, value if whole else value[:-1], *arguments, **named)

    LogProducer.produce = cutting


DEFECTS = {
    function.__name__: function
    for function in (
        deliver_each,
        one_by_one,
        forget_to_skip,
        unstable_places,
        forget_since,
        forget_to_flush,
        acknowledge_early,
        null_for_toast,
        pause_late,
        ignore_fork,
        believe_the_server,
        place_with_the_last_commit,
        forget_to_skip_messages,
        forget_constants,
        forget_places,
        forget_children,
        forget_newcomers,
        forget_touched,
        forget_hidden,
        believe_the_catalogue,
        forget_filenode,
        forget_writers,
        progress_before_copy,
        forget_to_hold,
        forget_to_hold_again,
        forget_what_was_seen,
        forget_how_copies_began,
        forget_key_index,
        forget_what_came_and_went,
        forget_the_publication,
        believe_fetched,
        believe_aborted,
        forget_to_compare,
        skip_bad_rows,
        forget_to_look,
        believe_start_lsn,
        forget_foreign,
        begin_after_the_frontier,
        look_at_the_log_first,
        look_once,
        forget_the_other_slots,
        forget_silence,
        forget_partitions,
        forget_losses,
        leave_generated_out,
        look_at_sequences_once,
        forget_to_wait,
        cut_values_off,
    )
}


def main():
    """Run capture as the command does."""
    parser = argparse.ArgumentParser()
    parser.add_argument("project", type=Path)
    parser.add_argument("--kill", default="")
    parser.add_argument("--defect", choices=sorted(DEFECTS))
    parser.add_argument("--until", default=None)
    parser.add_argument("--signal", default="SIGKILL", help="sent at the point of --kill")
    parser.add_argument("--at", default="", help="POINT:SQL, run there the first time")
    parser.add_argument("--hasty", action="store_true", help="every time limit of ours is short")
    parser.add_argument("--halts", action="store_true", help="SIGSTOP where the file `halt` says")
    parser.add_argument("--small", action="store_true", help="small chunks, short segments")
    arguments = parser.parse_args()
    set_up_logging()
    faulthandler.register(signal.SIGUSR1)  # says where it is
    if arguments.defect:
        DEFECTS[arguments.defect]()
    if arguments.hasty:
        hasty()
    if arguments.small:
        task.DEFAULT_BLOCKS = 1
        backfill.SEGMENT_S = backfill.FIRST_SEGMENT_S = 0.01
    place, _, statement = arguments.at.partition(":")
    # POINT:TIMES:AFTER:COUNT, killed at POINT once AFTER was seen COUNT times
    point, times, after, count = [*arguments.kill.split(":"), "", "", ""][:4]
    for name in filter(None, (place, point, after)):
        Failpoint(name)  # one that is not there would never be met
    if Failpoint.RECORD_PRODUCED in (point, after):
        bulk.PIECE = 1  # so that it can be met behind each of them
    seen: Counter[str] = Counter()
    sent: list[str] = []

    halt = arguments.project / "halt"

    def failpoint(name):
        seen[name] += 1
        if arguments.halts and halt.exists() and halt.read_text() == name:
            halt.unlink()
            signal.raise_signal(signal.SIGSTOP)
        if name == place and seen[name] == 1:
            execute(settings.postgres, statement)
        due = name == point and seen[name] >= int(times or 1)
        if due and (not after or seen[after] >= int(count or 1)) and not sent:
            sent.append(name)
            signal.raise_signal(getattr(signal, arguments.signal))

    # A worker is a process more: where a table is one chunk, it would only be started.
    workers = {} if arguments.small else {"capture.snapshot_workers": 1}
    settings = load_project(arguments.project, overrides=workers)
    run = CaptureRun(
        settings,
        report=CaptureReport(),
        stop=stop_on_signals(),
        console=Console(stderr=True),
        failpoint=failpoint,
    )
    run.run(until_lsn(settings, arguments.until))


if __name__ == "__main__":
    main()
