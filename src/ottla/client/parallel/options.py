"""The keyword arguments of the parallel consumers.

They are those of a consumer, plus: how many records are handled at once, in which order, and what happens to those
that fail.
"""

from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from ottla.client.consumer.options import ConsumerConfig, ConsumerOptions
from ottla.client.network.backoff import Backoff
from ottla.client.options import OptionError, configured, option
from ottla.client.parallel.parallel_consumer_state import ParallelLimits


class ParallelConsumerOptions(ConsumerOptions, total=False):
    """The options of a parallel consumer; `ParallelConsumerConfig` documents them."""

    workers: int
    ordering: Literal["key", "partition", "unordered"]
    handler_retries: int
    handler_backoff_ms: int
    handler_backoff_max_ms: int
    dead_letter_topic: str | None
    buffered_records_max: int
    buffered_bytes_max: int
    uncommitted_records_max: int
    handover_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelConsumerConfig(ConsumerConfig):
    """The options of a parallel consumer. `group_id` is required; offsets are committed every
    `auto_commit_interval_ms`."""

    workers: int = option(16, least=1)
    """How many records are handled at once."""
    ordering: Literal["key", "partition", "unordered"] = "key"
    """Which records are handled one after the other: records with the same key (records without a key in any order),
    records of the same partition, or none."""
    handler_retries: int = option(3, least=0)
    """How often a record is retried after its handler failed."""
    handler_backoff_ms: int = option(100, least=0)
    handler_backoff_max_ms: int = option(30_000, least=0)
    """The wait before the first retry of a record, and the longest one; it doubles in between, with jitter."""
    dead_letter_topic: str | None = None
    """Where records are written that failed after all retries, with the error in headers. Without a dead-letter topic
    such a record ends `run` with `HandlerFailedError`. With `enable_retry`, the topic's configs say where: a record
    whose handler failed is handed back at once, so that the broker counts its attempts and their backoff."""
    buffered_records_max: int = option(1_000, least=1)
    buffered_bytes_max: int = option(64 << 20, least=1)
    """How much is held in memory, approximately; above it, partitions pause until half of it is done."""
    uncommitted_records_max: int = option(10_000, least=1)
    """How many records a partition may be ahead of its oldest unfinished one; a crash repeats at most that many."""
    handover_timeout_ms: int = option(30_000, least=0)
    """How long handlers may continue when their partition is revoked or the consumer stops. Afterwards coroutines are
    cancelled, and threads are not waited for."""

    def check(self) -> None:
        """Raises `OptionError` for options that exclude each other."""
        # Not super(): a dataclass with slots is a new class, which super() would not find.
        ConsumerConfig.check(self)
        if self.group_id is None:
            raise OptionError("ParallelConsumer: group_id is required, since offsets are committed")
        if self.dead_letter_topic == "":
            raise OptionError(
                "ParallelConsumer: dead_letter_topic must not be empty; omit it to stop at the first failure"
            )

    @property
    def limits(self) -> ParallelLimits:
        """The limits for `ParallelConsumerState`."""
        return ParallelLimits(
            workers=self.workers,
            ordering=self.ordering,
            buffered_records_max=self.buffered_records_max,
            buffered_bytes_max=self.buffered_bytes_max,
            uncommitted_max=self.uncommitted_records_max,
            retries=0 if self.enable_retry else self.handler_retries,
            backoff=Backoff(
                first_ms=self.handler_backoff_ms,
                most_ms=max(self.handler_backoff_ms, self.handler_backoff_max_ms),
            ),
        )

    def consumer_options(self) -> dict[str, Any]:
        """The options of its consumer, which neither deserializes nor commits by itself."""
        ours: dict[str, Any] = {"enable_auto_commit": False, "key_deserializer": None, "value_deserializer": None}
        return {each.name: getattr(self, each.name) for each in fields(ConsumerConfig)} | ours


PARALLEL_CONSUMER: Final = "ParallelConsumer"
_REPLACED_BY_RETRY: Final = ("handler_retries", "handler_backoff_ms", "handler_backoff_max_ms", "dead_letter_topic")


def parallel_consumer_config(options: ParallelConsumerOptions) -> ParallelConsumerConfig:
    """The checked config. Raises `OptionError`."""
    config = configured(ParallelConsumerConfig, PARALLEL_CONSUMER, options)
    config.check()
    excluded = [name for name in _REPLACED_BY_RETRY if name in options]
    if config.enable_retry and excluded:
        raise OptionError(
            f"ParallelConsumer cannot have enable_retry together with {', '.join(excluded)}: the configs of the topic"
            " say how often and when records are retried, and where dead letters go"
        )
    return config
