"""A real share consumer on the simulated network whose requests are written to the history."""

from collections.abc import Callable
from typing import Any, Unpack

from ottla.client.network.cluster import Cluster
from ottla.client.share.async_share_consumer import AsyncShareConsumer
from ottla.client.share.core import ShareConsumerCore
from ottla.client.share.options import ShareConsumerConfig, ShareConsumerOptions
from ottla.client.share.share_fetcher import Exchange
from ottla.client.share.share_session_state import FetchRequest, Request
from ottla.client.share.values import AcknowledgeType
from ottla.sim.clients import REQUEST_TIMEOUT_MS, ClientMachine
from ottla.sim.history import History
from ottla.sim.shares.history import Acquisition


class _ObservedCore(ShareConsumerCore):
    """Notes what is sent and what is answered; changes nothing."""

    def __init__(
        self,
        config: ShareConsumerConfig,
        *,
        cluster: Cluster,
        member: str,
        history: History,
        time: Callable[[], float],
    ) -> None:
        super().__init__(config, cluster=cluster)
        self._member = member
        self._note = history.note
        self._history = history.shares
        self._time = time
        self._asked: dict[int, tuple[float, Request]] = {}
        """The last request to each broker."""
        self._exchange = self.fetcher._exchange
        self.fetcher._exchange = self._observe  # type: ignore[method-assign]

    async def _observe(self, lane: Any, request: Request) -> None:
        asked_at = self._time()
        self._asked[lane.session.broker] = (asked_at, request)
        if isinstance(request, FetchRequest):
            # Until it is answered: its member may be killed meanwhile.
            self._history.lost_fetches.append(asked_at)
        for each in request.acknowledgements:
            self._history.on_acknowledging(each.name, each.types, self._member, asked_at)
        await self._exchange(lane, request)

    def _on_exchange(self, exchange: Exchange) -> None:
        asked_at, request = self._asked[exchange.broker]
        is_lost = not self.fetcher.is_held(exchange.broker, exchange.session)
        if isinstance(request, FetchRequest) and not is_lost:
            self._history.lost_fetches.remove(asked_at)
        for fetched in exchange.outcome.fetched:
            name = self._names.get(fetched.partition)
            if name is None:
                continue
            for first, last, count in fetched.acquired:
                acquisition = Acquisition(self._member, count, asked_at, self._time())
                self._note(f"{self._member} acquires {name} {first} to {last}, delivery {count}")
                self._history.on_acquired(name, range(first, last + 1), acquisition)
        for settled in exchange.outcome.settled:
            given = settled.acknowledgements
            types = ", ".join(f"{offset} {AcknowledgeType(how).name}" for offset, how in given.types.items())
            result = "" if settled.error is None else f": {type(settled.error).__name__}"
            self._note(f"{self._member} acknowledged {given.name} {types}{result}")
            if settled.error is None:
                self._history.on_acknowledged(given.name, given.types, self._member, asked_at, self._time())
        super()._on_exchange(exchange)


def share_consumer(
    client: ClientMachine,
    history: History,
    time: Callable[[], float],
    *topics: str,
    **options: Unpack[ShareConsumerOptions],
) -> AsyncShareConsumer:
    """A share consumer; must be created in its process."""
    options.setdefault("request_timeout_ms", REQUEST_TIMEOUT_MS)
    consumer = AsyncShareConsumer(**options)
    consumer._made = _ObservedCore(
        consumer.config, cluster=client.cluster(), member=client.host, history=history, time=time
    )
    consumer.subscribe(topics)
    return consumer
