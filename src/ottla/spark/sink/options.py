"""The options of the sink: those of Spark's own Kafka connector, and how rows are delivered.

Parsed once, when Spark creates the writer. `option_names.py` has the `kafka.` options, `columns.py` the columns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from ottla.client.admin.options import AdminConfig
from ottla.client.options import OptionError
from ottla.client.producer.options import ProducerConfig, producer_config
from ottla.spark.option_names import bootstrap_of, chosen_for, client_options, refuse_unknown
from ottla.spark.sink.names import checked_sink_id
from ottla.spark.values.value_encoder import OPTION_NAMES as VALUE_OPTION_NAMES
from ottla.spark.values.value_encoder import ValueEncoder, encoder_for

OPTION_NAMES: Final = (
    *VALUE_OPTION_NAMES,
    "topic",
    "includeHeaders",
    "delivery",
    "transactionTimeoutMs",
    "sinkId",
    "batchId",
    "decisionTopic",
)
"""In their usual spelling; `includeHeaders` has no effect on writing, as in Spark's own connector."""
TRANSACTION_TIMEOUT_MS: Final = 900_000
"""The most that brokers allow by default (`transaction.max.timeout.ms`)."""
_ROOM_BYTES: Final = 64 * 1024 * 1024
_FORBIDDEN: Final = {
    "transactional_id": "the sink chooses the transactional ids; sinkId is a part of them",
    "transaction_timeout_ms": "set transactionTimeoutMs instead",
}


class Delivery(StrEnum):
    """The delivery guarantee for read_committed readers."""

    EXACTLY_ONCE = "exactly-once"
    """Each row once, and all rows of a batch or none."""
    AT_LEAST_ONCE = "at-least-once"
    """Each row, and some more than once if a task or a batch is repeated, as with Spark's own connector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The parsed options of the sink."""

    client: dict[str, Any] = field(repr=False)
    """Options of every client: brokers, timeouts, and how they log in."""
    producer_arguments: dict[str, Any] = field(repr=False)
    producer: ProducerConfig
    """The producer options, parsed."""
    topic: str | None
    """The topic of all rows; None if a column has it."""
    delivery: Delivery
    transaction_timeout_ms: int | None
    """None is the maximum that brokers allow."""
    sink_id: str | None
    """The id of the sink; None for the id of the query."""
    batch_id: int | None
    """The number of a batch write, which is then written once however often it runs."""
    decision_topic: str | None = None
    """The topic for which decisions are stored as committed offsets; None for that of all groups."""
    encoder: ValueEncoder | None = None
    """Makes values of columns; None if a column has them."""


def sink_options(raw: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
    """Parses the options, whose names are in lower case. Raises `OptionError`."""
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
        # Checked here rather than in every task: options that transactions do not allow.
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
        decision_topic=(raw.get("decisiontopic") or "").strip() or None,
        encoder=encoder_for(raw),
    )


def _delivery(raw: Mapping[str, str]) -> Delivery:
    text = raw.get("delivery", Delivery.EXACTLY_ONCE)
    try:
        return Delivery(text.lower())
    except ValueError:
        raise OptionError(f"delivery={text} is not one of {', '.join(Delivery)}") from None


def _topic(raw: Mapping[str, str]) -> str | None:
    topic = raw.get("topic")
    if topic is not None and not topic.strip():
        raise OptionError("the option topic is empty; set a topic, or remove the option and add a column topic")
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
        raise OptionError(f"{name}={text} is not an integer of at least {least}")
    return number


def _check_batch_id(batch_id: int | None, sink_id: str | None, delivery: Delivery, *, is_stream: bool) -> None:
    if batch_id is None:
        if sink_id is not None and not is_stream:
            raise OptionError("sinkId of a batch write needs batchId, the number of the batch")
        return
    if is_stream:
        raise OptionError("batchId is for batch writes; Spark numbers the batches of a stream: remove it")
    if sink_id is None:
        raise OptionError("batchId needs sinkId, the sink of the batch")
    if delivery is not Delivery.EXACTLY_ONCE:
        raise OptionError("batchId needs delivery=exactly-once; remove one of them")
