"""This broker as a member of its cluster: it registers, keeps its registration, and leaves in order.

A registration is a lease, and its revision tells the lives of a broker apart. One that is lost is asked for again;
until it is there, nothing is led that another broker may lead by then. Who stops hands over first, and only to brokers
that were heard of a moment ago: a registration may outlive a machine without power by a session's timeout.
"""

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ottla.controller.registration import register_broker
from ottla.metadata.image import BrokerImage
from ottla.metadata.records import partition_key
from ottla.metadata.store import Lease
from ottla.model.errors import OttlaError
from ottla.model.ids import BrokerId, TopicPartition

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_LOGGER: Final = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0
_REGISTER_SECONDS_MIN: Final = 15.0
_SESSION_SLACK_SECONDS: Final = 5.0
"""A session that ended is known to have ended so much later, at the latest."""
_HAND_OVER_SECONDS_MIN: Final = 10.0
_HAND_OVER_PAUSE_SECONDS: Final = 0.1
_HEARD_OF_FETCHES: Final = 3
"""So many waits of a follower's fetch without a sign of it are too long for one that is alive."""


class Membership:
    """See the module's docstring. `register`, then `keep` until cancelled; `hand_over` and `leave` at the end."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._lease: Lease | None = None
        self._me: BrokerImage | None = None
        self.is_leaving = False
        """Whether this broker is about to stop: it hands over what it has, and takes nothing new."""

    # What it is

    @property
    def is_registered(self) -> bool:
        """Whether the cluster counts on this broker, as far as it knows itself."""
        return self._lease is not None and not self._lease.is_lost

    @property
    def epoch(self) -> int:
        """Which life of this broker this is: the revision of its registration; -1 without one."""
        return self._lease.revision if self._lease is not None and not self._lease.is_lost else -1

    @property
    def is_seen(self) -> bool:
        """Whether the image has the registration."""
        return self._me is not None and self._broker.image.brokers.get(self._broker.id) == self._me

    def is_counted_on(self) -> bool:
        """Whether some partition's record still counts on what an earlier life of this broker had."""
        broker = self._broker
        image = broker.image
        return any(
            broker.id in (*partition.isr, *partition.eligible)
            and broker.id not in partition.lost
            and partition.replicas != (broker.id,)
            and not broker.may_lead_since(image.revision_of(partition_key(topic.name, index)))
            for topic in image.topics.values()
            for index, partition in enumerate(topic.partitions)
        )

    def has_heard_of(self, where: TopicPartition, other: BrokerId) -> bool:
        """Whether another replica has shown a moment ago that it lives: by its fetch, or by its answer to ours."""
        broker = self._broker
        partition = broker.partitions.held.get(where)
        if partition is None:
            return False
        heard_at = float("-inf")
        if partition.leader is not None:
            follower = partition.leader.followers.get(other)
            heard_at = follower.fetched_at if follower is not None else heard_at
        elif partition.follower is not None and partition.follower.leader == other:
            heard_at = broker.leader_answered_at(other)
        seconds = max(_HEARD_OF_FETCHES * broker.config.replica_fetch_wait_max_ms / 1000, 0.5)
        return broker.clock.monotonic() - heard_at <= seconds

    # Coming

    async def register(self, me: BrokerImage) -> None:
        """Announces the broker. Raises ConflictError if another one has its id."""
        self._me = me
        self.is_leaving = False
        await self._register(me)

    async def _register(self, me: BrokerImage) -> None:
        broker = self._broker
        # The session of an earlier life, which was killed, must have had the time to end.
        session_seconds = broker.config.broker_session_timeout_ms / 1000
        seconds = max(session_seconds + _SESSION_SLACK_SECONDS, _REGISTER_SECONDS_MIN)
        self._lease = await register_broker(broker.metadata_store, me, broker.clock, timeout_ms=int(seconds * 1000))

    async def keep(self) -> None:
        """A registration that is lost is asked for again; until it is there, nothing is led that another may lead."""
        broker = self._broker
        while True:
            if self._lease is not None:
                await self._lease.wait_lost()
                _LOGGER.warning("broker %d lost its registration; it leads nothing until it has a new one", broker.id)
                self._lease = None
                broker.on_registration_lost()
            if self._me is None:
                return
            self._me = replace(self._me, is_intact=broker.store.is_intact)
            try:
                await self._register(self._me)
                broker.office.on_image()
            except OttlaError as error:
                _LOGGER.warning("broker %d cannot register: %s", broker.id, error)
                await broker.clock.sleep(_RETRY_SECONDS)

    # Going

    async def hand_over(self) -> None:
        """Lets others lead before this broker stops, so that clients have somewhere to go.

        Others that are registered and silent are waited for: they speak again, or their session ends. Leaders are told
        first that they must not take this broker back into an ISR that it has left.
        """
        broker = self._broker
        self.is_leaving = True
        broker.follow_leaders()
        if len(broker.image.brokers) == 1:
            return
        session_seconds = broker.config.broker_session_timeout_ms / 1000
        moved = 0
        try:
            async with asyncio.timeout(max(session_seconds + _SESSION_SLACK_SECONDS, _HAND_OVER_SECONDS_MIN)):
                while True:
                    left = await broker.controller.leave(broker.id, self.has_heard_of)
                    moved += len(left.outcomes)
                    await broker.wait_revision(left.revision)
                    if not self._is_waited_for():
                        break
                    await broker.clock.sleep(_HAND_OVER_PAUSE_SECONDS)
        except (OttlaError, TimeoutError) as error:
            _LOGGER.warning("broker %d stops without having handed over all that it leads: %s", broker.id, error)
        else:
            _LOGGER.info("broker %d handed over %d partitions", broker.id, moved)

    def _is_waited_for(self) -> bool:
        """Whether there is somebody registered who could take over something from this broker."""
        image, me = self._broker.image, self._broker.id
        return any(
            me in partition.isr and any(each != me and each in image.brokers for each in partition.isr)
            for topic in image.topics.values()
            for partition in topic.partitions
        )

    async def leave(self) -> None:
        """Gives the registration back. Raises StorageError; it ends with the session, too."""
        lease, self._lease, self._me = self._lease, None, None
        if lease is not None:
            await lease.release()
