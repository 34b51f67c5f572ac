"""A registry without logins on loopback: pages of other sites, opened in a browser of this machine, cannot use it."""

import pytest

from ottla.testing import InProcessBroker
from tests.broker.registry.service.instances import ORDER, served

PATH = "/subjects/orders-value/versions"


async def test_a_page_cannot_use_the_registry(ottla_broker: InProcessBroker) -> None:
    async with served(ottla_broker.bootstrap) as one:
        await one.until_leading()
        rebound = {"host": "evil.example:8081"}
        assert (421, 421) == await one.error("POST", PATH, ORDER, headers=rebound)
        assert (421, 421) == await one.error("GET", "/subjects", headers=rebound)
        for origin in ("http://evil.example", "http://localhost:3000", "null"):
            assert (403, 403) == await one.error("POST", PATH, ORDER, headers={"origin": origin})
        assert [] == await one.call("GET", "/subjects")
        assert (421, 421) == await one.error("GET", "/subjects", headers=rebound)  # also what is kept
        assert 1 == (await one.call("POST", PATH, ORDER, headers={"host": "localhost"}))["id"]


@pytest.mark.parametrize(("hosts", "status"), [((), (421, 403)), (("ui.example",), (200, 200))])
async def test_a_page_behind_a_proxy_may_use_it(
    ottla_broker: InProcessBroker, hosts: tuple[str, ...], status: tuple[int, int]
) -> None:
    async with served(ottla_broker.bootstrap, hosts=hosts) as one:
        proxied = {"host": "ui.example"}
        origin = {"origin": "https://ui.example"}
        answers = [await one.http.get("/subjects", headers=headers) for headers in (proxied, origin)]
        assert list(status) == [each.status_code for each in answers]
