"""Which settings `--fix-topics` touches."""

from changelog.contract.log.topic import TopicSettings
from changelog.sink.topics import changes

SETTINGS = TopicSettings(min_compaction_lag_ms=1000, delete_retention_ms=2000)


def test_only_what_differs_is_altered():
    actual = {**SETTINGS.to_config(), "cleanup.policy": "delete", "delete.retention.ms": "9000"}
    assert changes(actual, SETTINGS) == {"cleanup.policy": "compact"}


def test_a_setting_that_contradicts_is_taken_back_to_its_default():
    actual = {**SETTINGS.to_config(), "max.compaction.lag.ms": "10"}
    assert changes(actual, SETTINGS) == {"max.compaction.lag.ms": None}


def test_a_longest_lag_below_the_wanted_least_goes_with_it():
    actual = {**SETTINGS.to_config(), "min.compaction.lag.ms": "5", "max.compaction.lag.ms": "10"}
    assert changes(actual, SETTINGS) == {
        "min.compaction.lag.ms": "1000",
        "max.compaction.lag.ms": None,
    }
