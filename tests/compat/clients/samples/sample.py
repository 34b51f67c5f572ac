"""What the samples of docs/queues.md take for granted; they are put where their name stands."""

from typing import Any


def process(record: Any) -> None:
    topic, value = record.topic, record.value
    # They are methods in confluent-kafka.
    topic, value = (topic(), value()) if callable(topic) else (topic, value)
    print(topic, value.decode(), flush=True)
    if topic == "orders":
        raise ValueError("out of stock")


# retry
