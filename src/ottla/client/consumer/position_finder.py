"""Finds the positions of partitions: committed offsets, resets to the first or the end offset, and validation after a
leader change. One task; the decisions are in `subscription_state.py`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Final

from ottla.client.consumer.errors import LogTruncatedError, UnknownPositionError
from ottla.client.consumer.leader_epochs import ask_epoch_ends
from ottla.client.consumer.options import ISOLATION_LEVELS, ConsumerConfig
from ottla.client.consumer.subscription_state import SubscriptionState
from ottla.client.errors import RetriableAnswerError, answer_error
from ottla.client.fetch.fetch_plan_state import FetchPlanState, Leader
from ottla.client.fetch.metadata_watch import MetadataWatch
from ottla.client.fetch.partition_state import UNKNOWN, Phase
from ottla.client.network.cluster import Cluster
from ottla.client.network.list_offsets import ask_offsets
from ottla.client.stop_task import stop_task
from ottla.client.values import OffsetAndMetadata
from ottla.model.errors import OttlaError, RetriableError
from ottla.model.ids import TopicPartition
from ottla.transport.client_connection import Connection

log: Final = logging.getLogger(__name__)

Committed = Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndMetadata | None]]]
"""Asks the coordinator once for the committed offsets."""


class PositionFinder:
    """Runs from `start` to `stop`. `on_error` gets the errors that a poll must raise."""

    def __init__(
        self,
        cluster: Cluster,
        metadata: MetadataWatch,
        subscription: SubscriptionState,
        plan: FetchPlanState,
        config: ConsumerConfig,
        *,
        lock: AbstractContextManager[object],
        committed: Committed | None,
        on_found: Callable[[], None],
        on_error: Callable[[OttlaError], None],
    ) -> None:
        self._cluster = cluster
        self._metadata = metadata
        self._subscription = subscription
        self._plan = plan
        self._config = config
        self._lock = lock
        self._committed = committed
        self._on_found = on_found
        self._on_error = on_error
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._tries = 0
        self._unled: set[TopicPartition] = set()
        """Partitions that had no known leader when it was to be asked."""

    def start(self) -> "asyncio.Task[None]":
        """Starts the task, which runs until `stop`."""
        self._task = asyncio.create_task(self._run())
        return self._task

    def wake(self) -> None:
        """A partition may need a position."""
        self._asked.set()

    def on_metadata(self) -> None:
        """The metadata was refreshed: partitions without a leader may have one now."""
        for partition in list(self._unled):
            if partition not in self._subscription.partitions:
                self._unled.discard(partition)
            elif self._metadata.leader(partition) is not None:
                self._unled.discard(partition)
                self._subscription.partitions[partition].retry_at = 0.0
        self.wake()

    async def stop(self) -> None:
        """Stops the task."""
        task, self._task = self._task, None
        await stop_task(task)

    async def _run(self) -> None:
        while True:
            self._asked.clear()
            for phase, find in (
                (Phase.UNKNOWN, self._find_committed),
                (Phase.RESETTING, self._find_resets),
                (Phase.VALIDATING, self._validate),
            ):
                partitions = self._subscription.waiting(phase, self._cluster.clock.monotonic())
                if partitions:
                    await self._try(partitions, find)
                    self._on_found()
            now = self._cluster.clock.monotonic()
            retry_at = self._subscription.next_retry()
            seconds = None if retry_at is None else max(retry_at - now, 0)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._asked.wait()

    async def _try(
        self, partitions: list[TopicPartition], find: Callable[[list[TopicPartition]], Awaitable[None]]
    ) -> None:
        try:
            await find(partitions)
            self._tries = 0
        except RetriableError as error:
            log.info("cannot find positions of %s, retrying: %s", ", ".join(map(str, partitions)), error)
            self._later(partitions)
            self._metadata.refresh_soon()
        except OttlaError as error:
            self._later(partitions)
            self._on_error(error)

    def _later(self, partitions: Collection[TopicPartition]) -> None:
        self._tries += 1
        wait = self._config.backoff.wait_ms(self._tries, self._cluster.random) / 1000
        retry_at = self._cluster.clock.monotonic() + wait
        with self._lock:
            for partition in partitions:
                state = self._subscription.partitions.get(partition)
                if state is not None and state.phase is not Phase.FETCHING:
                    state.retry_at = retry_at

    async def _find_committed(self, partitions: list[TopicPartition]) -> None:
        found: Mapping[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(partitions)
        if self._committed is not None:
            found = await self._committed(partitions)
        nowhere = []
        with self._lock:
            for partition in partitions:
                committed = found.get(partition)
                offset = None if committed is None else committed.offset
                epoch = UNKNOWN if committed is None else committed.leader_epoch
                if not self._subscription.on_committed(partition, offset, epoch):
                    nowhere.append(partition)
        if nowhere:
            names = ", ".join(map(str, sorted(nowhere)))
            raise UnknownPositionError(
                nowhere,
                f"{names}: no committed offset, and auto_offset_reset is none; call seek for each partition",
            )

    async def _find_resets(self, partitions: list[TopicPartition]) -> None:
        states = self._subscription.partitions
        asked = {each: to for each in partitions if (to := states[each].reset_to) is not None}
        isolation_level = ISOLATION_LEVELS[self._config.isolation_level]

        async def ask(
            connection: Connection, some: list[TopicPartition], leaders: Mapping[TopicPartition, Leader]
        ) -> None:
            wanted = {each: asked[each] for each in some}
            answer = await ask_offsets(connection, wanted, isolation_level, self._config.request_timeout_ms)
            refused: list[OttlaError] = []
            for partition, found in answer.items():
                if found.error_code:
                    refused.append(self._refused(partition, found.error_code))
                    continue
                with self._lock:
                    self._subscription.on_reset(partition, asked[partition], max(found.offset, 0))
                    self._plan.forget([partition])
            if refused:
                raise refused[0]

        await self._ask_leaders(list(asked), ask)

    async def _validate(self, partitions: list[TopicPartition]) -> None:
        truncated: dict[TopicPartition, int | None] = {}

        async def ask(
            connection: Connection, some: list[TopicPartition], leaders: Mapping[TopicPartition, Leader]
        ) -> None:
            asked = {
                each: (state.offset, state.offset_epoch)
                for each in some
                if (state := self._subscription.partitions.get(each)) is not None and state.offset_epoch >= 0
            }
            wanted = {each: (leaders[each].epoch, epoch) for each, (_, epoch) in asked.items()}
            answer = await ask_epoch_ends(connection, wanted, self._config.request_timeout_ms)
            refused: list[OttlaError] = []
            for partition, found in answer.items():
                if found.error_code:
                    refused.append(self._refused(partition, found.error_code))
                    continue
                offset = asked[partition][0]
                with self._lock:
                    end = self._subscription.on_validated(
                        partition, offset, leaders[partition].epoch, found.epoch, found.end_offset
                    )
                    if end is not None:
                        self._plan.forget([partition])
                if end is not None:
                    log.warning("partition %s: log truncated at %s, below the position %s", partition, end, offset)
                    if self._subscription.policy_of(partition) is None:
                        truncated[partition] = end if end >= 0 else None
            if refused:
                raise refused[0]

        await self._ask_leaders(partitions, ask)
        if truncated:
            names = ", ".join(f"{each} (truncated at {end})" for each, end in sorted(truncated.items()))
            raise LogTruncatedError(
                truncated,
                f"log truncated below the position, records that were read are lost: {names}; call seek to continue",
            )

    def _refused(self, partition: TopicPartition, error_code: int) -> OttlaError:
        self._later([partition])
        self._cluster.forget_topic(partition.topic)
        return answer_error(error_code, f"offsets of {partition}")

    async def _ask_leaders(
        self,
        partitions: list[TopicPartition],
        ask: Callable[[Connection, list[TopicPartition], Mapping[TopicPartition, Leader]], Awaitable[None]],
    ) -> None:
        """Asks each leader about its partitions; raises the first error after all were asked."""
        leaders = {each: leader for each in partitions if (leader := self._metadata.leader(each)) is not None}
        failures: list[OttlaError] = []
        for broker in dict.fromkeys(leader.broker for leader in leaders.values()):
            some = [each for each, leader in leaders.items() if leader.broker == broker]
            try:
                await ask(await self._cluster.broker_connection(broker), some, leaders)
            except OttlaError as error:
                failures.append(error)
                self._later(some)
        unled = [each for each in partitions if each not in leaders]
        if unled:
            self._later(unled)
            self._unled.update(unled)
            self._metadata.refresh_soon()
        final = [each for each in failures if not isinstance(each, RetriableError | RetriableAnswerError)]
        if failures:
            raise (final or failures)[0]
