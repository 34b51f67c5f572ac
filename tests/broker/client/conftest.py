"""What the client's tests share: one broker for all that talk to one."""

from collections.abc import Iterator

import pytest

from ottla.transport.addresses import Address, parse_address
from tests.broker.client.broker_process import running_broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """A broker's address; tests use topics of their own."""
    with running_broker(tmp_path_factory.mktemp("broker") / "data") as address:
        yield parse_address(address)
