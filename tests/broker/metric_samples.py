"""The metrics of a broker as they are now, without its HTTP endpoint."""

from ottla.broker.broker import Broker

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples_of(broker: Broker) -> Samples:
    """Every sample by its name and labels; what is counted in partitions is from the last scrape."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in broker.metrics.collect()
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    """One of them."""
    return samples[name, tuple(sorted(labels.items()))]


def value_of(broker: Broker, name: str, **labels: str) -> float:
    """One of them, as it is now; 0 before it is counted."""
    return samples_of(broker).get((name, tuple(sorted(labels.items()))), 0)
