"""The keyword arguments of the producers, and what they mean together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Unpack

from ottla.client.options import ClientConfig, ClientOptions, OptionError, configured, option
from ottla.client.producer.accumulator_state import AccumulatorLimits
from ottla.client.producer.interceptors import ProducerInterceptor
from ottla.client.producer.partitioner import Partitioner
from ottla.client.serializers import Serialized, Serializer
from ottla.records.layout import Codec

Acks = Literal[-1, 0, 1, "all"]
CompressionType = Literal["none", "gzip", "snappy", "lz4", "zstd"]
IDEMPOTENT_IN_FLIGHT_MAX: Final = 5
"""How many batches of a producer a broker remembers for each partition."""


class ProducerOptions(ClientOptions, total=False):
    """What a producer may be told; see `ProducerConfig`."""

    key_serializer: Callable[[Any], Serialized] | Serializer | None
    value_serializer: Callable[[Any], Serialized] | Serializer | None
    partitioner: Partitioner | None
    interceptors: Sequence[ProducerInterceptor]
    acks: Acks
    compression_type: CompressionType | None
    compression_level: int | None
    batch_size: int
    linger_ms: int | float
    buffer_memory: int
    max_block_ms: int
    max_request_size: int
    max_in_flight_requests_per_connection: int
    retries: int
    delivery_timeout_ms: int
    enable_idempotence: bool
    transactional_id: str | None
    transaction_timeout_ms: int


_LEVELS: Final = {Codec.GZIP: (-1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131_072, 22)}
"""From the fastest to the smallest, as Kafka's producer has them; -1 is gzip's own default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """What a producer was told. Names are kafka-python's, defaults those of Kafka's own producer."""

    key_serializer: Callable[[Any], Serialized] | Serializer | None = None
    value_serializer: Callable[[Any], Serialized] | Serializer | None = None
    """A callable of the value, or an object whose `serialize` also gets the topic; None if values are bytes."""
    partitioner: Partitioner | None = None
    """Chooses the partition of a record that names none; None is Java's (`ottla.client.producer.partitioner`)."""
    interceptors: Sequence[ProducerInterceptor] = ()
    acks: Acks = "all"
    """Who must have a record for it to count as written: all in-sync replicas ("all", -1), the leader (1), none (0)."""
    compression_type: CompressionType | None = None
    compression_level: int | None = None
    """As the codec counts; None is its default. Snappy has none."""
    batch_size: int = option(16_384, least=0)
    """The largest batch, in bytes before compression; a larger record is a batch of its own."""
    linger_ms: int | float = option(5, least=0)
    """How long a batch that is not full waits for more records."""
    buffer_memory: int = option(33_554_432, least=1)
    """How many bytes may wait to be sent, all together."""
    max_block_ms: int = option(60_000, least=0)
    """How long `send` waits for metadata and memory, and a transaction's methods for the coordinator."""
    max_request_size: int = option(1_048_576, least=1)
    """The largest request, and record, in bytes."""
    max_in_flight_requests_per_connection: int = option(5, least=1)
    retries: int = option(2_147_483_647, least=0, most=2_147_483_647)
    """How often a batch is sent again; `delivery_timeout_ms` is the better bound."""
    delivery_timeout_ms: int = option(120_000, least=1)
    """How long after `send` a record's fate is known at the latest."""
    enable_idempotence: bool = True
    """Whether brokers keep records from being written twice, or out of order, when they are sent again."""
    transactional_id: str | None = None
    """The name under which this producer's transactions outlive it; a newer producer of that name fences it."""
    transaction_timeout_ms: int = option(60_000, least=1, most=2_147_483_647)
    """After how long the coordinator aborts a transaction by itself."""

    @property
    def codec(self) -> Codec:
        """The compression."""
        return Codec[(self.compression_type or "none").upper()]

    @property
    def wire_acks(self) -> int:
        """As requests say it."""
        return -1 if self.acks == "all" else self.acks

    def limits(self, *, is_async: bool) -> AccumulatorLimits:
        """What the accumulator needs to know."""
        return AccumulatorLimits(
            batch_size=self.batch_size,
            linger=self.linger_ms / 1000,
            buffer_memory=self.buffer_memory,
            request_size=self.max_request_size,
            delivery_timeout=self.delivery_timeout_ms / 1000,
            retries=self.retries,
            backoff=self.backoff,
            codec=self.codec,
            level=self.compression_level,
            is_idempotent=self.enable_idempotence,
            is_transactional=self.transactional_id is not None,
            is_async=is_async,
        )


def producer_config(client: str, **given: Unpack[ProducerOptions]) -> ProducerConfig:
    """The config of a producer, called so for people. Raises `OptionError` for what cannot be, alone or together.

    Where idempotence was not asked for by name, options that exclude it turn it off.
    """
    config = configured(ProducerConfig, client, given)
    if config.transactional_id == "":
        raise OptionError(f"transactional_id='' of {client} is no name; give one, or None for no transactions")
    _check_level(client, config)
    excluded = [
        f"{name}={getattr(config, name)!r}"
        for name, fits in (
            ("acks", config.wire_acks == -1),
            ("retries", config.retries > 0),
            (
                "max_in_flight_requests_per_connection",
                config.max_in_flight_requests_per_connection <= IDEMPOTENT_IN_FLIGHT_MAX,
            ),
        )
        if not fits
    ]
    if excluded and config.enable_idempotence:
        if "enable_idempotence" in given or config.transactional_id is not None:
            wanted = "transactional_id" if config.transactional_id is not None else "enable_idempotence=True"
            raise OptionError(
                f"{client} cannot have {wanted} together with {', '.join(excluded)}; idempotence needs acks='all',"
                f" retries above 0 and at most {IDEMPOTENT_IN_FLIGHT_MAX} requests in flight"
            )
        config = replace(config, enable_idempotence=False)
    if config.transactional_id is not None and not config.enable_idempotence:
        raise OptionError(f"{client} cannot have transactional_id together with enable_idempotence=False")
    least_ms = int(config.linger_ms) + config.request_timeout_ms
    if config.delivery_timeout_ms < least_ms:
        if "delivery_timeout_ms" in given:
            raise OptionError(
                f"delivery_timeout_ms={config.delivery_timeout_ms} of {client} is too small; it covers linger_ms and"
                f" request_timeout_ms, {least_ms} here: raise it, or lower those"
            )
        config = replace(config, delivery_timeout_ms=least_ms)
    return config


def _check_level(client: str, config: ProducerConfig) -> None:
    """Raises `OptionError` for a level that the codec does not have, before a batch is compressed with it."""
    level = config.compression_level
    if level is None:
        return
    levels = _LEVELS.get(config.codec)
    if levels is None:
        raise OptionError(
            f"compression_level={level} of {client} has no meaning with compression_type={config.compression_type!r};"
            " omit it, or choose gzip, lz4 or zstd"
        )
    if not levels[0] <= level <= levels[1]:
        raise OptionError(
            f"compression_level={level} of {client} is not a level of {config.compression_type}; its levels are"
            f" {levels[0]} to {levels[1]}"
        )
