"""Read metrics the way Prometheus does."""

from prometheus_client.parser import text_string_to_metric_families


def samples(text):
    """Return the value of each sample by its name and sorted labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
