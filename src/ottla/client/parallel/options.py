"""What a parallel consumer may be told: the keyword arguments of `ParallelConsumer` and `AsyncParallelConsumer`.

All of a consumer's, and how many records are handled at once, in which order, and what happens to those that fail.
"""

from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from ottla.client.consumer.options import ConsumerConfig, ConsumerOptions
from ottla.client.network.backoff import Backoff
from ottla.client.options import ClientConfig, OptionError, configured, option
from ottla.client.parallel.parallel_consumer_state import ParallelLimits


class ParallelConsumerOptions(ConsumerOptions, total=False):
    """What a parallel consumer may be told; see `ParallelConsumerConfig`."""

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
    """What a parallel consumer was told. It needs a `group_id`, and commits by itself: what is done, in order,
    every `auto_commit_interval_ms`."""

    workers: int = option(16, least=1)
    """How many records are handled at once."""
    ordering: Literal["key", "partition", "unordered"] = "key"
    """Which records are handled one after the other: those of the same key (those without one in any order), those of
    the same partition, or none."""
    handler_retries: int = option(3, least=0)
    """How often a record is tried again after its handler failed."""
    handler_backoff_ms: int = option(100, least=0)
    handler_backoff_max_ms: int = option(30_000, least=0)
    """The wait before the first retry of a record, and the longest; it doubles in between, a little at random."""
    dead_letter_topic: str | None = None
    """Where records go that failed for good, with their story in headers. Without one, such a record ends `run` with
    `HandlerFailedError`."""
    buffered_records_max: int = option(1_000, least=1)
    buffered_bytes_max: int = option(64 << 20, least=1)
    """How much is held in memory, about; beyond it, partitions pause until half of it is done."""
    uncommitted_records_max: int = option(10_000, least=1)
    """How far a partition may be ahead of its oldest record that is not done: what a crash makes it repeat at most."""
    handover_timeout_ms: int = option(30_000, least=0)
    """How long handlers may go on when their partition is taken away, or at the end; then asyncio's are cancelled, and
    nobody waits for threads."""

    def check(self) -> None:
        """Refuses options that do not fit each other."""
        # Named, since a dataclass with slots is another class than the one that `super` would look for.
        ConsumerConfig.check(self)
        if self.group_id is None:
            raise OptionError("a parallel consumer needs a group_id, to keep how far it is")
        if self.dead_letter_topic == "":
            raise OptionError("dead_letter_topic='' is no topic; leave it out to stop at a record that fails")

    @property
    def limits(self) -> ParallelLimits:
        """How much may be under way."""
        return ParallelLimits(
            workers=self.workers,
            ordering=self.ordering,
            buffered_records_max=self.buffered_records_max,
            buffered_bytes_max=self.buffered_bytes_max,
            uncommitted_max=self.uncommitted_records_max,
            retries=self.handler_retries,
            backoff=Backoff(
                first_ms=self.handler_backoff_ms,
                most_ms=max(self.handler_backoff_ms, self.handler_backoff_max_ms),
            ),
        )

    def consumer_options(self) -> dict[str, Any]:
        """What its consumer is told: everything that is a consumer's, but records stay bytes, and commits are ours."""
        ours: dict[str, Any] = {"enable_auto_commit": False, "key_deserializer": None, "value_deserializer": None}
        return {each.name: getattr(self, each.name) for each in fields(ConsumerConfig)} | ours

    def producer_options(self) -> dict[str, Any]:
        """What the producer of dead letters is told."""
        return {each.name: getattr(self, each.name) for each in fields(ClientConfig)}


PARALLEL_CONSUMER: Final = "ParallelConsumer"


def parallel_consumer_config(options: ParallelConsumerOptions) -> ParallelConsumerConfig:
    """The checked config of these arguments. Raises `OptionError`."""
    config = configured(ParallelConsumerConfig, PARALLEL_CONSUMER, options)
    config.check()
    return config
