"""The runner of our broker: it starts again where it was, leaves nothing running, and says why it cannot start."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.ottla_broker import OttlaBroker


def _accepts(address: str) -> bool:
    host, _, port = address.partition(":")
    with socket.socket() as client:
        return client.connect_ex((host, int(port))) == 0


@pytest.mark.parametrize("end", [OttlaBroker.stop, OttlaBroker.kill])
def test_it_comes_back_at_its_address(tmp_path: Path, end: Callable[[OttlaBroker], None]) -> None:
    broker = OttlaBroker(tmp_path / "broker")
    address = broker.bootstrap
    with broker:
        assert _accepts(address)
        end(broker)
        assert not _accepts(address)
        broker.start()
        assert address == broker.bootstrap
        assert _accepts(address)
    assert not _accepts(address)


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    broker = OttlaBroker(tmp_path / "broker", overrides={"log.retention.hour": "1"})
    with pytest.raises(AssertionError, match=r"log\.retention\.hours"):
        broker.start()


def test_two_brokers_cannot_share_a_folder(tmp_path: Path) -> None:
    with OttlaBroker(tmp_path / "broker"), pytest.raises(AssertionError, match="ended with 1"):
        OttlaBroker(tmp_path / "broker").start()
