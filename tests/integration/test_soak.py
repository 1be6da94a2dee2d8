"""The storm of `make soak`, short: without a defect it finds nothing, with one it does."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.services, pytest.mark.slow, pytest.mark.matrix]

DEADLINE_S = 1200


def soak(*more):
    """Run it; return its exit code and its figures."""
    words = ["-m", "tests.soak", "--minutes", "1", *more]
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )
    print(done.stdout, done.stderr)
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.timeout(DEADLINE_S)
@pytest.mark.parametrize("postgres", ["15", "18"])
def test_a_short_storm_finds_nothing_wrong(downloads, postgres):
    code, figures = soak("--seed", "1", "--postgres", postgres)
    assert code == 0
    assert figures["mismatches"] == 0
    assert figures["faults"] > 5
    assert figures["generations_judged"] > 5
    assert figures["never_happened"] == []
    assert min(figures["followed_states_by_view"].values()) > 2


@pytest.mark.timeout(DEADLINE_S)
def test_twin_a_null_for_what_the_stream_leaves_out_is_found(downloads):
    defect = ["--defect", "null_for_toast", "--calm"]
    code, figures = soak("--seed", "2", *defect)
    assert code == 1
    assert figures["mismatches"] > 0


FOLLOWED = ("--seed", "3", "--minutes", "2", "--calm", "--rate", "8")


@pytest.mark.timeout(2 * DEADLINE_S)
def test_twin_a_follower_whose_readers_have_a_delta_in_two_steps_is_found(downloads):
    """The same storm finds nothing without the defect."""
    code, figures = soak(*FOLLOWED, "--follower-defect", "forward_in_halves")
    assert code == 1
    assert figures["mixed_states"] + figures["mismatches"] > 0
    code, figures = soak(*FOLLOWED)
    assert code == 0
    assert figures["states_glanced_at"] > 10


@pytest.mark.timeout(2 * DEADLINE_S)
def test_twin_a_row_and_a_document_that_somebody_alters_are_found_by_verify(downloads):
    """The storms above alter none, and `changelog verify` says nothing."""
    code, figures = soak(*FOLLOWED, "--verify", "--planted")
    assert code == 1
    assert figures["never_happened"] == [], "both are found, by their keys"
    assert {alarm.partition(":")[0] for alarm in figures["verified"]["alarms"]} == {
        "small table", "index",
    }  # fmt: skip
