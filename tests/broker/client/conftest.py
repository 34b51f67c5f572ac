"""What the client's tests share: one broker for all that talk to one."""

from collections.abc import Iterator

import pytest

from ottla.transport.addresses import Address, parse_address
from tests.broker_process import STEADY, BrokerProcess


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """A broker's address; tests use topics of their own."""
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings=STEADY) as broker:
        yield parse_address(broker.address)
