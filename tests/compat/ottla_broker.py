"""Runs `ottla serve` as a process of its own, with the names that `kafka_broker` has for Kafka's.

The process itself is `tests.broker_process`: one that keeps its address and its log when it starts again.
"""

from collections.abc import Mapping
from pathlib import Path

from tests.broker_process import BrokerProcess


class OttlaBroker(BrokerProcess):
    """One Ottla broker. Use as a context manager, or call `start` and `stop`; it can start again on the same files."""

    def __init__(self, folder: Path, *, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, settings=overrides)
        self.log_dir = self.data
        self.bootstrap = self.address
        """The address to give to clients."""

    def __exit__(self, *_: object) -> None:
        self.stop()
