"""A broker that a test can start, stop, kill, pause and resume.

The subclasses are in `in_process_broker.py` and `process_broker.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self

from ottla.model.errors import MisuseError, OttlaError
from ottla.testing.free_ports import free_port

QUICK_SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "log.retention.check.interval.ms": "3600000",
        "group.initial.rebalance.delay.ms": "0",
        "group.streams.initial.rebalance.delay.ms": "0",
        **{
            f"group.{kind}.{name}": milliseconds
            for kind in ("consumer", "share", "streams")
            for name, milliseconds in (
                ("assignment.interval.ms", "0"),
                ("heartbeat.interval.ms", "300"),
                ("min.heartbeat.interval.ms", "300"),
            )
        },
    }
)
"""Settings for fast and steady tests: few internal partitions, groups whose members do not wait for others and hear of
changes at once, and records with old timestamps that are not deleted in the middle of a test, as they would be five
minutes after the start."""


class BrokerDidNotStartError(OttlaError):
    """A broker could not be started; the message has its error or log."""


class BrokerHandle(ABC):
    """One broker. A context manager that starts it, and closes it at the end.

    `settings` are broker configs. The first start takes a free port, which stays the same and is kept from other test
    processes. `metadata` is the file that the brokers of a cluster share; without it the broker is a cluster of one.
    """

    host = "127.0.0.1"
    """The host that it listens on."""

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
        """The id of the broker."""
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

    def _port_to_listen_on(self) -> int:
        return self.port or free_port()

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Whether it was started and not stopped or killed; a paused broker is running."""

    @property
    @abstractmethod
    def is_paused(self) -> bool:
        """Whether it is paused."""

    @abstractmethod
    def start(self) -> None:
        """Starts it on its data, and returns when it is ready. Raises `BrokerDidNotStartError`."""

    @abstractmethod
    def stop(self) -> None:
        """Stops it cleanly; does nothing if it is not running."""

    @abstractmethod
    def kill(self) -> None:
        """Ends it at once, as if its process was killed: clients lose their connections, and the next start recovers
        the files. Does nothing if it is not running."""

    @abstractmethod
    def pause(self) -> None:
        """Makes it hang: connections stay open and new ones are accepted, but nothing is answered."""

    @abstractmethod
    def resume(self) -> None:
        """Continues a paused broker; does nothing if it is not paused."""

    def restart(self) -> None:
        """Stops it cleanly if it is running, and starts it on the same data and port."""
        self.resume()
        self.stop()
        self.start()

    def close(self) -> None:
        """Stops it, running, paused or not; only its folder remains."""
        self.resume()
        self.stop()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        replicas: int = 1,
    ) -> str:
        """Creates a topic and returns its name; it can be used at once."""
        return create_topic(self.bootstrap, name, partitions, configs, replicas)


def create_topic(
    bootstrap: str, name: str, partitions: int, configs: Mapping[str, str] | None, replicas: int, **security: Any
) -> str:
    """Creates a topic and returns its name when the brokers know it; `security` are options of the client."""
    from ottla.client.admin.blocking_admin import Admin
    from ottla.client.admin.values import NewTopic

    with Admin(bootstrap_servers=bootstrap, client_id="ottla-testing", **security) as admin:
        admin.create_topics([NewTopic(name, partitions, replicas, topic_configs=configs or {})], wait_for_metadata=True)
    return name
