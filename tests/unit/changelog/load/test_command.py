"""Options of `changelog load` that contradict each other, before a server is asked."""

import pytest

WHERE = ("--into", "postgresql:///nowhere", "--table", "t", "--broker", "localhost:1")


@pytest.mark.parametrize("more", [(), ("--follow",)])
def test_a_topic_that_is_loaded_takes_no_dead_letters(run_command, more, tmp_path):
    words = ["load", "a", "b", *WHERE, "--project", str(tmp_path), *more]
    code, _, said = run_command([*words, "--on-error", "dead-letter:b"])
    assert code == 2
    assert 'topic "b" is loaded itself: its dead letters would be loaded again' in said
