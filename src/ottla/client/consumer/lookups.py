"""What a consumer can be asked that needs an answer from a broker: offsets, positions, topics. All within a time."""

from collections.abc import Collection, Mapping
from typing import Any

from ottla.client.consumer.core import ConsumerCore
from ottla.client.consumer.leader_requests import OffsetAnswer, ask_offsets
from ottla.client.consumer.options import ISOLATION_LEVELS
from ottla.client.errors import DeadlineError, answer_error
from ottla.client.values import OffsetAndMetadata, OffsetAndTimestamp
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition


def as_offsets(given: Mapping[TopicPartition, Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets to commit as people write them: numbers, or with metadata beside."""
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for partition, offset in given.items():
        if isinstance(offset, int):
            offset = OffsetAndMetadata(offset)
        if not isinstance(offset, tuple) or not 1 <= len(offset) <= 3 or offset[0] < 0:
            raise MisuseError(f"{partition}: {offset!r} is no offset to commit; use OffsetAndMetadata")
        found[TopicPartition(*partition)] = OffsetAndMetadata(*offset)
    return found


class ConsumerQuestions:
    """Questions on behalf of one consumer; what goes wrong is tried again until the time is over."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._cluster = core.cluster

    def _timeout_ms(self, timeout_ms: int | None) -> int:
        return self._core.config.default_api_timeout_ms if timeout_ms is None else timeout_ms

    async def position(self, partition: TopicPartition, timeout_ms: int | None) -> int:
        """Where a partition is, once that is known."""
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
                    f"the position of {partition} is not known after {self._timeout_ms(timeout_ms)} ms; "
                    "does the topic exist, and does its leader answer?"
                )
            core.positions.wake()
            await core.wait_ready(remaining)

    async def committed(
        self, partitions: Collection[TopicPartition], timeout_ms: int | None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group committed."""
        return await self._core.committer.committed(partitions, self._timeout_ms(timeout_ms))

    async def bounds(
        self, partitions: Collection[TopicPartition], which: int, timeout_ms: int | None
    ) -> dict[TopicPartition, int]:
        """Where partitions begin or end."""
        found = await self._offsets(dict.fromkeys(partitions, which), timeout_ms)
        return {partition: answer.offset for partition, answer in found.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition at or after a time."""
        for partition, timestamp in timestamps.items():
            if timestamp < 0:
                raise MisuseError(f"{partition}: {timestamp} is no time; use milliseconds since 1970")
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
        cluster, config = self._cluster, self._core.config
        isolation_level = ISOLATION_LEVELS[config.isolation_level]
        asked = {TopicPartition(*partition): to for partition, to in wanted.items()}
        found: dict[TopicPartition, OffsetAnswer] = {}

        async def ask_missing() -> None:
            by_leader: dict[int, dict[TopicPartition, int]] = {}
            for partition, to in asked.items():
                if partition not in found:
                    by_leader.setdefault(await cluster.leader_of(partition), {})[partition] = to
            for leader, some in by_leader.items():
                connection = await cluster.broker_connection(leader)
                answers = await ask_offsets(connection, some, isolation_level, config.request_timeout_ms)
                found.update({partition: answer for partition, answer in answers.items() if not answer.error_code})
                for partition, answer in answers.items():
                    if answer.error_code:
                        raise answer_error(answer.error_code, f"offsets of {partition}")

        await cluster.retry(ask_missing, timeout_ms=self._timeout_ms(timeout_ms))
        return {partition: found[partition] for partition in asked}

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
        """The names of all topics but the broker's own."""

        async def ask() -> set[str]:
            view = await self._cluster.refresh(None)
            return {name for name, topic in view.topics.items() if not topic.is_internal}

        return await self._cluster.retry(ask, timeout_ms=self._timeout_ms(timeout_ms))
