"""A broker in its cluster: it registers, keeps its registration, hands leadership over, and leaves.

A registration is a lease, and its revision is the broker epoch: it tells the starts of a broker apart. A lost
registration is asked for again; until then the broker leads nothing that another broker may lead by now. A broker that
stops hands leadership over first, only to replicas that fetched or responded a moment ago: a registration may outlive a
machine without power by the session timeout.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ottla.controller.controller import Controller
from ottla.controller.registration import register_broker
from ottla.env.ports import Clock
from ottla.metadata.image import BrokerImage
from ottla.metadata.image_follower import ImageFollower
from ottla.metadata.records import partition_key
from ottla.metadata.store import Lease, MetadataStore
from ottla.model.errors import OttlaError
from ottla.model.ids import BrokerId
from ottla.replication.replica_fetcher import ReplicaFetchers

_LOGGER: Final = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0
_REGISTER_SECONDS_MIN: Final = 15.0
SESSION_SLACK_SECONDS: Final = 5.0
"""How long after its timeout a session may still be seen."""
_HAND_OVER_SECONDS_MIN: Final = 10.0
_HAND_OVER_PAUSE_SECONDS: Final = 0.1


class BrokerLifecycle:
    """The registration of one broker: `register`, then `keep` until cancelled; `hand_over` and `leave` at the end."""

    def __init__(
        self, me: BrokerId, store: MetadataStore, metadata: ImageFollower, clock: Clock, *, session_timeout_ms: int
    ) -> None:
        self._me = me
        self._store = store
        self._metadata = metadata
        self._clock = clock
        self._session_seconds = session_timeout_ms / 1000 + SESSION_SLACK_SECONDS
        self._lease: Lease | None = None
        self._registration: BrokerImage | None = None
        self.unregistered_because: str | None = None
        """Why this broker is not registered any more; None while it is."""
        self.is_leaving = False
        """Whether this broker is about to stop: it hands leadership over and takes none."""

    # State

    @property
    def is_registered(self) -> bool:
        """Whether this broker has a registration, as far as it knows."""
        return self._lease is not None and not self._lease.is_lost

    @property
    def epoch(self) -> int:
        """The broker epoch: the revision of the registration; -1 without one."""
        return self._lease.revision if self._lease is not None and not self._lease.is_lost else -1

    @property
    def is_seen(self) -> bool:
        """Whether the image has the registration."""
        return self._registration is not None and self._metadata.image.brokers.get(self._me) == self._registration

    def may_lead_since(self, revision: int) -> bool:
        """Whether a partition's record of this revision was made for the present registration."""
        return -1 < self.epoch < revision

    def is_counted_on(self) -> bool:
        """Whether some partition's record still counts on the log that this broker had before it registered."""
        image = self._metadata.image
        return any(
            self._me in (*partition.isr, *partition.eligible)
            and self._me not in partition.lost
            and partition.replicas != (self._me,)
            and not self.may_lead_since(image.revision_of(partition_key(topic.name, index)))
            for topic in image.topics.values()
            for index, partition in enumerate(topic.partitions)
        )

    # Registration

    async def register(self, registration: BrokerImage) -> None:
        """Registers the broker. Raises ConflictError if another broker has its id."""
        self._registration = registration
        await self._register(registration)

    async def _register(self, registration: BrokerImage) -> None:
        # The session of an earlier process that was killed must have had the time to end.
        seconds = max(self._session_seconds, _REGISTER_SECONDS_MIN)
        self._lease = await register_broker(self._store, registration, self._clock, timeout_ms=int(seconds * 1000))

    async def keep(
        self, *, is_intact: Callable[[], bool], on_lost: Callable[[], None], on_registered: Callable[[], None]
    ) -> None:
        """Registers again whenever the registration is lost, until cancelled.

        `on_lost` must resign leadership of all partitions that another broker may lead by now. `is_intact` says
        whether the logs have all that they had before.
        """
        while True:
            if self._lease is not None:
                await self._lease.wait_lost()
                _LOGGER.warning(
                    "broker %d lost its registration; resigned leadership of all replicated partitions until it"
                    " re-registers",
                    self._me,
                )
                self._lease = None
                self.unregistered_because = "its session with the metadata store has ended"
                on_lost()
            if self._registration is None:
                return
            self._registration = replace(self._registration, is_intact=is_intact())
            try:
                await self._register(self._registration)
                self.unregistered_because = None
                on_registered()
            except OttlaError as error:
                self.unregistered_because = str(error)
                _LOGGER.warning("broker %d cannot register, retrying in %g s: %s", self._me, _RETRY_SECONDS, error)
                await self._clock.sleep(_RETRY_SECONDS)

    # Shutdown

    async def hand_over(self, controller: Controller, fetchers: ReplicaFetchers) -> None:
        """Moves leadership to other brokers before this one stops, so that clients are served on.

        Registered replicas that do not fetch or respond are waited for: they come back, or their session ends. Leaders
        are told first not to take this broker back into an ISR that it has left.
        """
        self.is_leaving = True
        fetchers.refresh()
        if len(self._metadata.image.brokers) == 1:
            return
        moved = 0
        try:
            async with asyncio.timeout(max(self._session_seconds, _HAND_OVER_SECONDS_MIN)):
                while True:
                    left = await controller.leave(self._me, fetchers.has_heard_of)
                    moved += len(left.outcomes)
                    await self._metadata.wait_revision(left.revision)
                    if not self._has_partner():
                        break
                    await self._clock.sleep(_HAND_OVER_PAUSE_SECONDS)
        except (OttlaError, TimeoutError) as error:
            _LOGGER.warning(
                "broker %d is stopping without having handed over leadership of all partitions: %s", self._me, error
            )
        else:
            _LOGGER.info("broker %d handed over leadership of %d partitions", self._me, moved)

    def _has_partner(self) -> bool:
        """Whether a registered broker shares an ISR with this one, so that it could still take over."""
        image = self._metadata.image
        return any(
            self._me in partition.isr and any(each != self._me and each in image.brokers for each in partition.isr)
            for topic in image.topics.values()
            for partition in topic.partitions
        )

    async def leave(self) -> None:
        """Gives the registration back. Raises StorageError; it also ends with the session."""
        lease, self._lease, self._registration = self._lease, None, None
        if lease is not None:
            await lease.release()
