"""Reads the metadata of each broker separately, so that a test can wait until all of them agree."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from ottla.client.loop_thread import LoopThread
from ottla.client.network.cluster_view import ClusterView
from ottla.env.real_network import RealNetwork
from ottla.model.errors import OttlaError
from ottla.protocol.apis import ApiKey
from ottla.transport.addresses import Address
from ottla.transport.client_connection import Connection
from ottla.transport.client_security import ClientSecurity

_ANSWER_TIMEOUT_MS: Final = 5_000
_PAUSE_SECONDS: Final = 0.02


class ClusterWatch:
    """Reads the metadata of brokers. Used by one thread; must be closed. `security` says how to connect to them."""

    def __init__(self, security: ClientSecurity | None = None) -> None:
        self._security = security
        self._thread: Final = LoopThread("ottla cluster watch")

    def close(self) -> None:
        """Stops its thread."""
        self._thread.close()

    def wait_views(
        self, addresses: Callable[[], Sequence[str]], is_so: Callable[[list[ClusterView]], bool], seconds: float
    ) -> list[ClusterView]:
        """The metadata of the brokers at these addresses, as soon as `is_so` is true for it; raises TimeoutError.

        A broker that does not answer is asked again.
        """
        return self._thread.call(self._wait_views(addresses, is_so), seconds)

    async def _wait_views(
        self, addresses: Callable[[], Sequence[str]], is_so: Callable[[list[ClusterView]], bool]
    ) -> list[ClusterView]:
        while True:
            answers = await asyncio.gather(
                *(_view(each, self._security) for each in addresses()), return_exceptions=True
            )
            views = [each for each in answers if isinstance(each, ClusterView)]
            for answer in answers:
                if isinstance(answer, BaseException) and not isinstance(answer, OttlaError | OSError):
                    raise answer
            if views and len(views) == len(answers) and is_so(views):
                return views
            await asyncio.sleep(_PAUSE_SECONDS)


async def _view(address: str, security: ClientSecurity | None) -> ClusterView:
    from kio.schema.metadata.v13.request import MetadataRequest

    host, _, port = address.rpartition(":")
    connection = await Connection.open(
        RealNetwork(),
        Address(host, int(port)),
        client_id="ottla-testing",
        timeout_ms=_ANSWER_TIMEOUT_MS,
        security=security,
    )
    try:
        asked = MetadataRequest(topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False)
        answer = await connection.request(ApiKey.METADATA, asked, timeout_ms=_ANSWER_TIMEOUT_MS)
    finally:
        connection.close()
    return ClusterView().merge(answer, whole=True)
