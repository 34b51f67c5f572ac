"""The options of `ShareConsumer` and `AsyncShareConsumer`, with their defaults.

Names are those of Java's share consumer, written as kafka-python writes names; the defaults are Java's.
"""

from dataclasses import dataclass
from typing import Final, Literal

from ottla.client.options import ClientConfig, ClientOptions, OptionError, option
from ottla.client.serializers import Deserializer

ACQUIRE_MODES: Final = {"batch_optimized": 0, "record_limit": 1}
"""The acquire modes, by their number in the protocol."""


class ShareConsumerOptions(ClientOptions, total=False):
    """The options of a share consumer; `ShareConsumerConfig` documents them."""

    group_id: str
    share_acknowledgement_mode: Literal["implicit", "explicit"]
    share_acquire_mode: Literal["batch_optimized", "record_limit"]
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_poll_records: int
    max_poll_interval_ms: int
    check_crcs: bool
    client_rack: str
    default_api_timeout_ms: int
    consumer_timeout_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerConfig(ClientConfig):
    """The options of a share consumer."""

    group_id: str = ""
    """The share group. Required."""
    share_acknowledgement_mode: Literal["implicit", "explicit"] = "implicit"
    """"implicit": the next `poll`, or `commit`, accepts all records of the last poll. "explicit": the program calls
    `acknowledge` for each record before the next poll."""
    share_acquire_mode: Literal["batch_optimized", "record_limit"] = "batch_optimized"
    """"batch_optimized": brokers acquire whole batches, which may be more than `max_poll_records`; the consumer keeps
    the rest for the next poll. "record_limit": brokers acquire at most `max_poll_records`, from one broker at a time
    (Kafka 4.2 or newer)."""
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    """Called with the bytes of a key or value; or a `RecordDeserializer`, such as those for schemas. A null key or
    value stays None and is not passed to it."""
    fetch_min_bytes: int = option(1, least=0)
    """A broker answers a fetch once this many bytes are there, or after `fetch_max_wait_ms`."""
    fetch_max_wait_ms: int = option(500, least=0)
    fetch_max_bytes: int = option(52_428_800, least=1)
    """The most bytes in one response; a larger batch is returned alone."""
    max_poll_records: int = option(500, least=1)
    """The most records that one `poll` returns."""
    max_poll_interval_ms: int = option(300_000, least=1)
    """The longest time between two polls; after that the member leaves its group."""
    check_crcs: bool = True
    client_rack: str = ""
    """The rack of this consumer."""
    default_api_timeout_ms: int = option(60_000, least=1)
    """The timeout of methods that ask a broker, unless they are called with another."""
    consumer_timeout_ms: float = option(float("inf"), least=0)
    """How long iteration waits for the next record before it ends."""

    def check(self) -> None:
        """Raises `OptionError` for options that do not fit each other."""
        if not self.group_id:
            raise OptionError("a share consumer needs a group_id, the name of its share group")
