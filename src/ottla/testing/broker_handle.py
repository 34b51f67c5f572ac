"""What a test has in its hand: a broker that it can talk to, stop, kill, pause and start again.

How that is done is the subclass's: `in_process_broker.py`, `process_broker.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self

from ottla.model.errors import MisuseError, OttlaError

QUICK_SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
)
"""What makes small tests fast: few internal partitions, and groups that do not wait for more members."""


class BrokerDidNotStartError(OttlaError):
    """A test's broker could not be started; says what it said."""


class BrokerHandle(ABC):
    """One broker. A context manager that starts it, and in the end removes all of it but its folder.

    `settings` are broker configs by Kafka's names. The port is free at the first start, and stays the same. `metadata`
    is the file that a cluster's brokers share; without it the broker is a cluster by itself.
    """

    host = "127.0.0.1"
    """The address that it serves at, without the port."""

    def __init__(
        self, folder: Path, settings: Mapping[str, str] | None = None, *, metadata: Path | None = None
    ) -> None:
        self.folder: Final = folder
        self.data: Final = folder / "data"
        self.settings: Final = {**QUICK_SETTINGS, **(settings or {})}
        self.metadata: Final = metadata
        self.port = 0

    @property
    def id(self) -> int:
        """The broker's number in its cluster."""
        return int(self.settings.get("node.id", "0"))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """The address for `bootstrap_servers`; it stays the same across restarts."""
        if not self.port:
            raise MisuseError("the broker was never started, so it has no address yet")
        return f"{self.host}:{self.port}"

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Whether it was started and not stopped or killed; a paused one is running."""

    @property
    @abstractmethod
    def is_paused(self) -> bool:
        """Whether it hangs."""

    @abstractmethod
    def start(self) -> None:
        """Returns once it serves, with all that was written before. Raises `BrokerDidNotStartError`."""

    @abstractmethod
    def stop(self) -> None:
        """Ends it cleanly, as at a planned restart; nothing happens if it does not run."""

    @abstractmethod
    def kill(self) -> None:
        """Ends it at once, as if its process was killed: clients lose their connections, and the next start finds the
        files as they were. Nothing happens if it does not run."""

    @abstractmethod
    def pause(self) -> None:
        """Lets it hang: connections stay open, and new ones are taken, but nothing is answered."""

    @abstractmethod
    def resume(self) -> None:
        """Lets a paused broker go on; nothing happens if it is not paused."""

    def restart(self) -> None:
        """Stops it cleanly if it runs, and starts it on the same files and the same port."""
        self.resume()
        self.stop()
        self.start()

    def close(self) -> None:
        """Ends it for good, whatever state it is in; nothing of it stays but its folder."""
        self.resume()
        self.stop()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        replicas: int = 1,
    ) -> str:
        """Creates a topic and answers its name; it can be used at once."""
        return create_topic(self.bootstrap, name, partitions, configs, replicas)


def create_topic(bootstrap: str, name: str, partitions: int, configs: Mapping[str, str] | None, replicas: int) -> str:
    """Creates a topic and answers its name; whoever is asked for it now knows it."""
    from ottla.client.admin.blocking_admin import Admin
    from ottla.client.admin.values import NewTopic

    with Admin(bootstrap_servers=bootstrap, client_id="ottla-testing") as admin:
        admin.create_topics([NewTopic(name, partitions, replicas, topic_configs=configs or {})], wait_for_metadata=True)
    return name
