"""The controller's office: whichever broker holds it gives partitions their leaders as brokers come and go.

Decisions are `ottla.controller`'s; here it is seen when one is due. Every broker tries to get the office when it is
free; what its holder commits is fenced by it. Now and then, unless configs forbid it, leadership goes back to the
preferred replicas. Requests of clients need no office: any broker commits those, and compare-and-set keeps them right.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.controller.controller import Controller
from ottla.controller.registration import become_controller
from ottla.metadata.image import NO_LEADER, ClusterImage, TopicImage
from ottla.metadata.records import broker_key
from ottla.metadata.store import Lease
from ottla.metadata.waiting import wait_first
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import NotControllerError, OttlaError

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_LOGGER: Final = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.5


class Office:
    """See the module's docstring. `run` until cancelled; `on_image` hears of every image."""

    def __init__(self, broker: "Broker", controller_for: Callable[[Lease], Controller]) -> None:
        self._broker = broker
        self._controller_for = controller_for
        self._news = asyncio.Event()
        self._news.set()
        self._lease: Lease | None = None
        self._topics: dict[str, TopicImage] = {}
        """As they were last looked at, with the brokers of then."""
        self._brokers: dict[int, int] = {}
        self._balanced_at = 0.0
        """When leadership was last brought back to the preferred replicas, or the office taken."""

    @property
    def is_held(self) -> bool:
        """Whether this broker is the controller."""
        return self._lease is not None and not self._lease.is_lost

    def on_image(self) -> None:
        """There is a new image."""
        self._news.set()

    async def run(self) -> None:
        """Takes the office when it is free, and does its work while it is held."""
        while True:
            await self._wait_work()
            self._news.clear()
            try:
                if not self.is_held and not await self.take():
                    continue
                await self._work()
                await self._balance()
            except NotControllerError:
                self._lease = None
                self._news.set()
            except OttlaError as error:
                _LOGGER.warning("the controller's work waits: %s", error)
                await self._broker.clock.sleep(_RETRY_SECONDS)
                self._news.set()

    async def _wait_work(self) -> None:
        due = self._balance_due()
        if due is None:
            await self._news.wait()
        else:
            seconds = max(due - self._broker.clock.monotonic(), 0.0)
            await wait_first(self._news.wait(), self._broker.clock.sleep(seconds))

    def _balance_due(self) -> float | None:
        config = self._broker.config
        if not self.is_held or not config.auto_leader_rebalance_enable:
            return None
        return self._balanced_at + config.leader_imbalance_check_interval_seconds

    async def _balance(self) -> None:
        """Lets the preferred replicas lead that are in sync, if it is time for that."""
        due = self._balance_due()
        if due is None or self._lease is None or due > self._broker.clock.monotonic():
            return
        self._balanced_at = self._broker.clock.monotonic()
        decided = await self._controller_for(self._lease).elect_leaders(None)
        changed = sum(outcome.error is ErrorCode.NONE for outcome in decided.outcomes)
        if changed:
            _LOGGER.info("%d partitions are led by their preferred replicas again", changed)

    async def take(self) -> bool:
        """Tries to become the controller; says whether this broker is."""
        image = self._broker.image
        if image.controller != NO_LEADER or not self._broker.is_registered:
            return False
        self._lease = await become_controller(self._broker.metadata_store, self._broker.id)
        self._topics, self._brokers = {}, {}
        self._balanced_at = self._broker.clock.monotonic()
        if self._lease is not None:
            _LOGGER.info("broker %d is the controller now, epoch %d", self._broker.id, self._lease.revision)
        return self._lease is not None

    async def _work(self) -> None:
        if self._lease is None:
            return
        controller = self._controller_for(self._lease)
        image = self._broker.image
        brokers = self._registrations(image)
        topics = (
            list(image.topics.values())
            if brokers != self._brokers
            else [topic for name, topic in image.topics.items() if self._topics.get(name) is not topic]
        )
        if topics:
            await controller.elect(topics)
            await controller.finish_reassignments()
        self._topics, self._brokers = dict(image.topics), brokers

    def _registrations(self, image: ClusterImage) -> dict[int, int]:
        return {broker: image.revision_of(broker_key(broker)) for broker in image.brokers}

    async def release(self) -> None:
        """Gives the office back."""
        lease, self._lease = self._lease, None
        if lease is not None:
            await lease.release()
