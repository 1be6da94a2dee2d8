"""Topics as capture makes them, in one step."""

from changelog.sink.topics import make_topics, plan_topics


def ensure_topics(kafka, wanted, **how):
    """Make the missing topics and check the others; arguments as for `plan_topics`."""
    return make_topics(kafka, plan_topics(kafka, wanted, **how))
