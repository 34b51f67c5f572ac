"""The options of the sink: those of Spark's own Kafka connector, and how rows are delivered.

Parsed once, when Spark makes the writer. `kafka.` options are in `option_names.py`, columns in `sink_columns.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from ottla.client.admin.options import AdminConfig
from ottla.client.options import OptionError
from ottla.client.producer.options import ProducerConfig, producer_config
from ottla.spark.option_names import bootstrap_of, chosen_for, client_options, refuse_unknown
from ottla.spark.sink.names import checked_sink_id

OPTION_NAMES: Final = ("topic", "includeHeaders", "delivery", "transactionTimeoutMs", "sinkId", "batchId")
"""As people write them; `includeHeaders` is the connector's, and has no effect on writing there either."""
TRANSACTION_TIMEOUT_MS: Final = 900_000
"""The most that brokers allow, unless they were told otherwise (`transaction.max.timeout.ms`)."""
_ROOM_BYTES: Final = 64 * 1024 * 1024
_FORBIDDEN: Final = {
    "transactional_id": "the sink gives its transactions names of its own; sinkId is a part of them",
    "transaction_timeout_ms": "say transactionTimeoutMs",
}


class Delivery(StrEnum):
    """What a reader of committed records may rely on."""

    EXACTLY_ONCE = "exactly-once"
    """Each row once, and all rows of a batch or none."""
    AT_LEAST_ONCE = "at-least-once"
    """Each row, and some again if a task or a batch is run again. Spark's own connector does this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """What the sink was told."""

    client: dict[str, Any]
    """For every client: where the brokers are, and how patient to be."""
    producer_arguments: dict[str, Any]
    producer: ProducerConfig
    """The same, understood."""
    topic: str | None
    """Where all rows go; None if a column says it."""
    delivery: Delivery
    transaction_timeout_ms: int | None
    """None is as much as brokers allow."""
    sink_id: str | None
    """What the sink is called, whatever query writes to it; None for the query's id."""
    batch_id: int | None
    """With which a batch write is done once, however often it is run."""


def sink_options(raw: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
    """Reads the options, whose names are in lower case. Raises `OptionError` that says what is allowed."""
    ignored = {"path", "checkpointlocation", "queryname"}
    refuse_unknown({key: text for key, text in raw.items() if key not in ignored}, OPTION_NAMES, "the sink ottla")
    bootstrap_of(raw)
    given = client_options(raw)
    for name, advice in _FORBIDDEN.items():
        if name in given:
            raise OptionError(f"kafka.{name.replace('_', '.')} cannot be set for the sink ottla: {advice}")
    arguments = {"buffer_memory": _ROOM_BYTES, **chosen_for(ProducerConfig, given)}
    delivery = _delivery(raw)
    if delivery is Delivery.EXACTLY_ONCE:
        # Says now, and not in every task, what cannot be together with transactions.
        producer_config("the sink ottla", **arguments, transactional_id="any")
    batch_id = _number(raw, "batchId", least=0)
    sink_id = raw.get("sinkid")
    _check_batch_id(batch_id, sink_id, delivery, is_stream=is_stream)
    return SinkOptions(
        client=chosen_for(AdminConfig, given),
        producer_arguments=arguments,
        producer=producer_config("the sink ottla", **arguments),
        topic=_topic(raw),
        delivery=delivery,
        transaction_timeout_ms=_number(raw, "transactionTimeoutMs", least=1),
        sink_id=None if sink_id is None else checked_sink_id(sink_id),
        batch_id=batch_id,
    )


def _delivery(raw: Mapping[str, str]) -> Delivery:
    text = raw.get("delivery", Delivery.EXACTLY_ONCE)
    try:
        return Delivery(text.lower())
    except ValueError:
        raise OptionError(f"delivery={text} is not allowed; it takes {' or '.join(Delivery)}") from None


def _topic(raw: Mapping[str, str]) -> str | None:
    topic = raw.get("topic")
    if topic is not None and not topic.strip():
        raise OptionError("the option topic is empty; name a topic, or leave it out and have a column topic")
    return None if topic is None else topic.strip()


def _number(raw: Mapping[str, str], name: str, *, least: int) -> int | None:
    text = raw.get(name.lower())
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number < 2**31:
        raise OptionError(f"{name}={text} is not allowed; it takes a whole number from {least} on")
    return number


def _check_batch_id(batch_id: int | None, sink_id: str | None, delivery: Delivery, *, is_stream: bool) -> None:
    if batch_id is None:
        if sink_id is not None and not is_stream:
            raise OptionError("sinkId of a batch write says of which sink it is a batch; say with batchId which one")
        return
    if is_stream:
        raise OptionError("batchId is for batch writes; Spark numbers the batches of a stream itself: leave it out")
    if sink_id is None:
        raise OptionError("batchId says which batch of which sink this is: name the sink with sinkId, too")
    if delivery is not Delivery.EXACTLY_ONCE:
        raise OptionError("batchId has a meaning only for delivery=exactly-once; leave one of them out")
