"""The keyword arguments of the producers, and which combinations are allowed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Unpack

from ottla.client.arguments import shown
from ottla.client.options import ClientConfig, ClientOptions, OptionError, configured, option
from ottla.client.producer.batching.accumulator_state import AccumulatorLimits
from ottla.client.producer.partitioner import Partitioner
from ottla.client.serializers import AnySerializer
from ottla.records.layout import Codec

Acks = Literal[-1, 0, 1, "all"]
CompressionType = Literal["none", "gzip", "snappy", "lz4", "zstd"]
IDEMPOTENT_IN_FLIGHT_MAX: Final = 5
"""How many of a producer's batches a broker remembers for each partition."""


class ProducerOptions(ClientOptions, total=False):
    """The options of a producer; `ProducerConfig` documents them."""

    key_serializer: AnySerializer | None
    value_serializer: AnySerializer | None
    partitioner: Partitioner | None
    interceptors: Sequence[Any]
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
"""The lowest and highest level of each codec, as in Kafka's producer; -1 is gzip's own default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """The options of a producer. Names are kafka-python's, defaults those of Kafka's Java producer."""

    key_serializer: AnySerializer | None = None
    value_serializer: AnySerializer | None = None
    """A callable that takes the value, an object whose `serialize` takes the topic too, or a `RecordSerializer`, such
    as those for schemas; None for bytes."""
    partitioner: Partitioner | None = None
    """Chooses the partition of a record sent without one; None chooses as Kafka's Java producer does."""
    interceptors: Sequence[Any] = ()
    """Objects with any of the methods of `ProducerInterceptor`."""
    acks: Acks = "all"
    """Which replicas must have a record before it is acknowledged: all in sync ("all"), the leader (1), none (0)."""
    compression_type: CompressionType | None = None
    compression_level: int | None = None
    """The codec's own levels; None is its default. Snappy has no levels."""
    batch_size: int = option(16_384, least=0)
    """The largest batch, in bytes before compression; a larger record gets a batch of its own."""
    linger_ms: int | float = option(5, least=0)
    """How long a batch that is not full waits for more records."""
    buffer_memory: int = option(33_554_432, least=1)
    """How many bytes of records may wait to be sent."""
    max_block_ms: int = option(60_000, least=0)
    """How long `send` waits for metadata and for memory, and transaction methods for the coordinator."""
    max_request_size: int = option(1_048_576, least=1)
    """The largest request, and the largest record, in bytes."""
    max_in_flight_requests_per_connection: int = option(5, least=1)
    retries: int = option(2_147_483_647, least=0, most=2_147_483_647)
    """How many times a batch is retried; prefer `delivery_timeout_ms` to limit retries."""
    delivery_timeout_ms: int = option(120_000, least=1)
    """How long after `send` a record is delivered or failed at the latest."""
    enable_idempotence: bool = True
    """Whether brokers discard duplicates and keep the order of records when batches are retried."""
    transactional_id: str | None = None
    """Identifies this producer's transactions across restarts; a newer producer with the same id fences it."""
    transaction_timeout_ms: int = option(60_000, least=1, most=2_147_483_647)
    """After how long the coordinator aborts an open transaction."""

    @property
    def codec(self) -> Codec:
        """The codec of `compression_type`."""
        return Codec[(self.compression_type or "none").upper()]

    @property
    def wire_acks(self) -> int:
        """`acks` as the Produce request encodes it."""
        return -1 if self.acks == "all" else self.acks

    def limits(self, *, is_async: bool) -> AccumulatorLimits:
        """The limits of the accumulator."""
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
    """The checked config of a producer; error messages name the client. Raises `OptionError`.

    Options that exclude idempotence turn it off, unless `enable_idempotence` or `transactional_id` was given.
    """
    config = configured(ProducerConfig, client, given)
    if config.transactional_id == "":
        raise OptionError(f"{client}: transactional_id must not be empty; omit it for a producer without transactions")
    _check_level(client, config)
    _check_interceptors(client, config)
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
                f"{client}: delivery_timeout_ms must be at least linger_ms + request_timeout_ms, which is {least_ms},"
                f" not {config.delivery_timeout_ms}"
            )
        config = replace(config, delivery_timeout_ms=least_ms)
    return config


def _check_interceptors(client: str, config: ProducerConfig) -> None:
    """Raises `OptionError` for an object that would never be called, such as a class in place of its instance."""
    for place, each in enumerate(config.interceptors):
        if isinstance(each, type) or not (hasattr(each, "on_send") or hasattr(each, "on_acknowledgement")):
            raise OptionError(
                f"{client}: interceptors[{place}] must have on_send or on_acknowledgement, not {shown(each)}"
            )


def _check_level(client: str, config: ProducerConfig) -> None:
    """Raises `OptionError` for a level that the codec does not have."""
    level = config.compression_level
    if level is None:
        return
    levels = _LEVELS.get(config.codec)
    if levels is None:
        raise OptionError(
            f"{client}: compression_level={level} has no effect with compression_type={config.compression_type!r};"
            " omit it, or choose gzip, lz4 or zstd"
        )
    if not levels[0] <= level <= levels[1]:
        raise OptionError(
            f"{client}: compression_level={level} is not a level of {config.compression_type}; its levels are"
            f" {levels[0]} to {levels[1]}"
        )
