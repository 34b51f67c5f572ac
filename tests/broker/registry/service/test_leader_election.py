"""Instances in one group on a real broker: one leads, all know which, and another takes over."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from ottla.client.network.cluster import Cluster
from ottla.client.stop_task import stop_task
from ottla.registry.service.election_protocol import Instance
from ottla.registry.service.leader_election import Elected, ElectionOptions, LeaderElection
from ottla.testing import InProcessBroker
from ottla.transport.addresses import parse_bootstrap

OPTIONS = ElectionOptions(session_timeout_ms=6_000, heartbeat_interval_ms=200)


class Member:
    """One instance, and what it was told."""

    def __init__(self, cluster: Cluster, port: int) -> None:
        self.port = port
        self.elected: Elected | None = None
        self.is_eligible = True
        self.election = LeaderElection(cluster, OPTIONS, me=self.me, on_elected=self.on_elected)
        self.changed = asyncio.Event()

    def me(self) -> Instance:
        leads = self.elected is not None and self.elected.is_this_instance
        return Instance(host="127.0.0.1", port=self.port, is_eligible=self.is_eligible, is_leader=leads)

    def on_elected(self, elected: Elected | None) -> None:
        self.elected = elected
        self.changed.set()

    async def until(self, condition: Callable[[Elected | None], bool]) -> None:
        while not condition(self.elected):
            self.changed.clear()
            await self.changed.wait()

    async def until_leader(self, port: int) -> None:
        await self.until(lambda elected: elected is not None and elected.leader.port == port)
        assert self.elected is not None
        assert (port == self.port) == self.elected.is_this_instance


@asynccontextmanager
async def member(broker: InProcessBroker, port: int) -> AsyncIterator[Member]:
    async with Cluster(parse_bootstrap(broker.bootstrap)) as cluster:
        made = Member(cluster, port)
        task = asyncio.create_task(made.election.run())
        try:
            yield made
        finally:
            await stop_task(task)
            await made.election.leave()


async def test_one_leads_it_stays_and_another_takes_over_when_it_leaves(ottla_broker: InProcessBroker) -> None:
    async with member(ottla_broker, 8082) as second:
        await second.until_leader(8082)
        async with member(ottla_broker, 8081) as first:
            # A smaller URL does not take over from an instance that leads.
            await first.until_leader(8082)
            async with member(ottla_broker, 8083) as third:
                await third.until_leader(8082)
                second.is_eligible = False
                second.election.rejoin()
                for each in (first, second, third):
                    await each.until_leader(8081)
        await second.until(lambda elected: elected is None)


async def test_the_same_url_twice_is_no_leader(ottla_broker: InProcessBroker, caplog: pytest.LogCaptureFixture) -> None:
    async with member(ottla_broker, 8081) as first:
        await first.until_leader(8081)
        async with member(ottla_broker, 8081):
            await first.until(lambda elected: elected is None)
        assert "same URL" in caplog.text
        await first.until_leader(8081)


async def test_an_instance_that_hears_nothing_gives_up(ottla_broker: InProcessBroker) -> None:
    async with member(ottla_broker, 8081) as first:
        await first.until_leader(8081)
        ottla_broker.pause()
        try:
            await first.until(lambda elected: elected is None)
        finally:
            ottla_broker.resume()
        await first.until_leader(8081)
