import pytest

from changelog.capture.state.policy import Reaction, answer, with_way_out
from changelog.contract.base.errors import (
    EncodeError,
    KeyConflictError,
    RecordRefusedError,
    SchemaConflictError,
    UncapturableTableError,
)
from changelog.sections import CaptureSettings

CHANGED = (SchemaConflictError("x"), UncapturableTableError("x"))
BAD = (EncodeError("x"), RecordRefusedError("x"))


@pytest.mark.parametrize("error", [*CHANGED, *BAD])
def test_by_default_everything_stops_and_says_what_else_can_be_done(error):
    assert answer(error, CaptureSettings()) is Reaction.STOP
    assert "`--on-error log`" in str(with_way_out(error))


@pytest.mark.parametrize("hint", ["", "look at the row"])
def test_the_ways_out_are_named_once(hint):
    error = with_way_out(with_way_out(EncodeError("x", hint=hint)))
    assert str(error).count("--on-error log") == 1


@pytest.mark.parametrize("error", CHANGED)
def test_a_copy_is_the_way_out_of_a_change_unless_it_is_what_failed(error):
    settings = CaptureSettings(on_incompatible="resnapshot", on_error="log")
    assert answer(error, settings) is Reaction.COPY
    assert answer(error, settings, copying=True) is Reaction.EXCLUDE
    stopping = CaptureSettings(on_incompatible="resnapshot")
    assert answer(error, stopping, copying=True) is Reaction.STOP


def test_a_copy_alone_helps_no_table_with_another_key_and_is_not_advised():
    error = KeyConflictError("x", hint="delete the topic")
    assert answer(error, CaptureSettings(on_incompatible="resnapshot")) is Reaction.STOP
    both = CaptureSettings(on_incompatible="resnapshot", on_error="log")
    assert answer(error, both) is Reaction.EXCLUDE
    said = str(with_way_out(error))
    assert "delete the topic" in said
    assert "copied anew" not in said


@pytest.mark.parametrize("error", BAD)
def test_a_copy_helps_no_value_that_cannot_be_written(error):
    assert answer(error, CaptureSettings(on_incompatible="resnapshot")) is Reaction.STOP
    assert answer(error, CaptureSettings(on_error="log")) is Reaction.EXCLUDE
