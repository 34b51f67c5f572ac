"""The methods of a consumer that ask a broker: offsets, positions, topics. All have a timeout."""

from collections.abc import Collection, Mapping
from typing import Any

from ottla.client.arguments import mismatch
from ottla.client.consumer.core import ConsumerCore
from ottla.client.consumer.options import ISOLATION_LEVELS
from ottla.client.errors import DeadlineError, answer_error
from ottla.client.network.list_offsets import OffsetAnswer, find_offsets
from ottla.client.values import OffsetAndMetadata, OffsetAndTimestamp
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition


def as_offsets(given: Mapping[TopicPartition, Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets to commit, given as numbers or with metadata. Raises `MisuseError`."""
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for partition, offset in given.items():
        made = OffsetAndMetadata(*(offset if isinstance(offset, tuple) and 1 <= len(offset) <= 3 else (offset,)))
        if mismatch(OffsetAndMetadata, made, "") is not None or made.offset < 0:
            raise MisuseError(
                f"{partition}: cannot commit {offset!r}; use an offset of 0 or more, or OffsetAndMetadata"
            )
        found[TopicPartition(*partition)] = made
    return found


class ConsumerLookups:
    """Lookups for one consumer; retriable errors are retried until the timeout."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._cluster = core.cluster

    def _timeout_ms(self, timeout_ms: int | None) -> int:
        return self._core.config.default_api_timeout_ms if timeout_ms is None else timeout_ms

    async def position(self, partition: TopicPartition, timeout_ms: int | None) -> int:
        """The position in a partition, once it is known."""
        core = self._core
        deadline = self._cluster.clock.monotonic() + self._timeout_ms(timeout_ms) / 1000
        while True:
            state = core.subscription.state(partition)
            if state.offset >= 0:
                return state.offset
            core.raise_error()
            remaining = deadline - self._cluster.clock.monotonic()
            if remaining <= 0:
                raise DeadlineError(
                    f"{partition}: the position could not be determined within {self._timeout_ms(timeout_ms)} ms; "
                    "check that the topic exists and has a leader"
                )
            core.positions.wake()
            await core.wait_ready(remaining)

    async def committed(
        self, partitions: Collection[TopicPartition], timeout_ms: int | None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The offsets that the group committed."""
        return await self._core.committer.committed(partitions, self._timeout_ms(timeout_ms))

    async def bounds(
        self, partitions: Collection[TopicPartition], which: int, timeout_ms: int | None
    ) -> dict[TopicPartition, int]:
        """The first or the end offsets of partitions."""
        found = await self._offsets(dict.fromkeys(partitions, which), timeout_ms)
        return {partition: answer.offset for partition, answer in found.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition at or after a timestamp."""
        for partition, timestamp in timestamps.items():
            if timestamp < 0:
                raise MisuseError(f"{partition}: timestamp {timestamp} is negative; use milliseconds since 1970")
        found = await self._offsets(timestamps, timeout_ms)
        return {
            partition: None
            if answer.offset < 0
            else OffsetAndTimestamp(
                answer.offset, answer.timestamp, answer.leader_epoch if answer.leader_epoch >= 0 else None
            )
            for partition, answer in found.items()
        }

    async def _offsets(
        self, wanted: Mapping[TopicPartition, int], timeout_ms: int | None
    ) -> dict[TopicPartition, OffsetAnswer]:
        return await find_offsets(
            self._cluster,
            {TopicPartition(*partition): timestamp for partition, timestamp in wanted.items()},
            isolation_level=ISOLATION_LEVELS[self._core.config.isolation_level],
            timeout_ms=self._timeout_ms(timeout_ms),
        )

    async def partitions_for_topic(self, topic: str, timeout_ms: int | None) -> set[int] | None:
        """The partitions of a topic; None if it does not exist."""

        async def ask() -> set[int] | None:
            view = await self._cluster.refresh([topic])
            if topic in view.topics:
                return {partition.index for partition in view.topics[topic].partitions}
            code = view.errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return None
            raise answer_error(code, f"topic {topic}")

        return await self._cluster.retry(ask, timeout_ms=self._timeout_ms(timeout_ms))

    async def topics(self, timeout_ms: int | None) -> set[str]:
        """The names of all topics except internal ones."""

        async def ask() -> set[str]:
            view = await self._cluster.refresh(None)
            return {name for name, topic in view.topics.items() if not topic.is_internal}

        return await self._cluster.retry(ask, timeout_ms=self._timeout_ms(timeout_ms))
