"""The active controller: one broker, elected by a lease, gives partitions their leaders as brokers come and go.

This is the shell: it notices when something must be decided; the decisions are in `*_state.py`. Every broker tries to
become the active controller when there is none, and everything that the active one commits is fenced by its lease. From
time to time, unless the configs forbid it, leadership goes back to the preferred replicas. Requests of clients do not
need the active controller: any broker commits those, and compare-and-set keeps them right.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ottla.controller.controller import Controller
from ottla.controller.registration import become_controller
from ottla.env.ports import Clock
from ottla.env.wait_first import wait_first
from ottla.metadata.image import NO_LEADER, ClusterImage, TopicImage
from ottla.metadata.records import broker_key
from ottla.metadata.store import Lease, MetadataStore
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import NotControllerError, OttlaError
from ottla.model.ids import BrokerId

_LOGGER: Final = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.5


class ActiveController:
    """This broker's part in the election, and its work while it is the active controller. `run` until cancelled.

    `controller_for` makes a controller whose commits are fenced by a lease; `is_registered` says whether this broker
    may become the active controller. Leadership goes back to the preferred replicas every `rebalance_seconds`, unless
    None.
    """

    def __init__(
        self,
        me: BrokerId,
        store: MetadataStore,
        image: Callable[[], ClusterImage],
        clock: Clock,
        *,
        controller_for: Callable[[Lease], Controller],
        is_registered: Callable[[], bool],
        rebalance_seconds: float | None,
    ) -> None:
        self._me = me
        self._store = store
        self._image = image
        self._clock = clock
        self._controller_for = controller_for
        self._is_registered = is_registered
        self._rebalance_seconds = rebalance_seconds
        self._news = asyncio.Event()
        self._news.set()
        self._lease: Lease | None = None
        self._topics: dict[str, TopicImage] = {}
        """The topics of the image that was last worked on."""
        self._brokers: dict[BrokerId, int] = {}
        """The registrations of that image: broker id to broker epoch."""
        self._rebalanced_at = 0.0
        """When leadership was last brought back to the preferred replicas, or this broker was elected."""

    @property
    def is_active(self) -> bool:
        """Whether this broker is the active controller."""
        return self._lease is not None and not self._lease.is_lost

    def on_image(self) -> None:
        """To be called when there is a new image."""
        self._news.set()

    async def run(self) -> None:
        """Stands for election when there is no controller, and works while this broker is the active one."""
        while True:
            await self._wait_work()
            self._news.clear()
            try:
                if not self.is_active and not await self.stand_for_election():
                    continue
                await self._work()
                await self._rebalance()
            except NotControllerError:
                self._lease = None
                self._news.set()
            except OttlaError as error:
                _LOGGER.warning("controller paused, retrying in %g s: %s", _RETRY_SECONDS, error)
                await self._clock.sleep(_RETRY_SECONDS)
                self._news.set()

    async def _wait_work(self) -> None:
        due = self._rebalance_due()
        if due is None:
            await self._news.wait()
        else:
            seconds = max(due - self._clock.monotonic(), 0.0)
            await wait_first(self._news.wait(), self._clock.sleep(seconds))

    def _rebalance_due(self) -> float | None:
        if not self.is_active or self._rebalance_seconds is None:
            return None
        return self._rebalanced_at + self._rebalance_seconds

    async def _rebalance(self) -> None:
        """Elects the preferred replicas that are in sync, if it is time for that."""
        due = self._rebalance_due()
        if due is None or self._lease is None or due > self._clock.monotonic():
            return
        self._rebalanced_at = self._clock.monotonic()
        decided = await self._controller_for(self._lease).elect_leaders(None)
        changed = sum(outcome.error is ErrorCode.NONE for outcome in decided.outcomes)
        if changed:
            _LOGGER.info("moved leadership of %d partitions back to their preferred replicas", changed)

    async def stand_for_election(self) -> bool:
        """Tries to become the active controller; returns whether this broker is elected."""
        if self._image().controller != NO_LEADER or not self._is_registered():
            return False
        self._lease = await become_controller(self._store, self._me)
        self._topics, self._brokers = {}, {}
        self._rebalanced_at = self._clock.monotonic()
        if self._lease is not None:
            _LOGGER.info("broker %d elected controller (epoch %d)", self._me, self._lease.revision)
        return self._lease is not None

    async def _work(self) -> None:
        if self._lease is None:
            return
        controller = self._controller_for(self._lease)
        image = self._image()
        brokers = {broker: image.revision_of(broker_key(broker)) for broker in image.brokers}
        topics = (
            list(image.topics.values())
            if brokers != self._brokers
            else [topic for name, topic in image.topics.items() if self._topics.get(name) is not topic]
        )
        if topics:
            await controller.elect(topics)
            await controller.finish_reassignments()
        self._topics, self._brokers = dict(image.topics), brokers

    async def resign(self) -> None:
        """Gives the lease back, so that another broker can be elected at once."""
        lease, self._lease = self._lease, None
        if lease is not None:
            await lease.release()
