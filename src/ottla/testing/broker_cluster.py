"""A cluster of several brokers, in the test process or as processes; each can be killed and paused.

`broker_handle.py` has the methods of one broker. The state of the cluster is read from its brokers
(`cluster_watch.py`), never from files.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from ottla.model.errors import MisuseError
from ottla.testing.broker_handle import BrokerHandle, create_topic
from ottla.testing.in_process_broker import InProcessBroker

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.client.network.cluster_view import ClusterView, PartitionView
    from ottla.testing.cluster_watch import ClusterWatch

    _Question = Callable[[list[ClusterView]], bool]

TIMEOUT_SECONDS: Final = 60.0
"""The default timeout of methods that wait for the cluster; then they raise TimeoutError."""
QUICK_CLUSTER_SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "replica.fetch.backoff.ms": "100",
        "replica.lag.time.max.ms": "9000",
    }
)
"""Settings for fast tests. No timeout is so short that a busy machine, which may stall for seconds, exceeds it."""
REPLICAS_MAX: Final = 3


class BrokerCluster:
    """Brokers numbered from 0, on free ports and folders below `folder`. A context manager that starts them all.

    `kind` is `InProcessBroker`, `ProcessBroker`, or a function with the same arguments; `settings` are broker configs.
    By default, topics have as many replicas as there are brokers, at most three; with three, `min.insync.replicas` is
    2, so that records acknowledged with `acks=all` survive the loss of one broker. If the brokers' listeners need TLS
    or a login, `client_options` are the security options of the clients with which the cluster creates topics and
    reads metadata.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        brokers: int = 3,
        kind: "Callable[..., BrokerHandle]" = InProcessBroker,
        client_options: Mapping[str, Any] | None = None,
    ) -> None:
        if brokers < 1:
            raise MisuseError(f"brokers={brokers}: a cluster needs at least one broker")
        self.replicas: Final = min(brokers, REPLICAS_MAX)
        """The default number of replicas of a topic."""
        self.settings: Final = {
            **QUICK_CLUSTER_SETTINGS,
            "default.replication.factor": str(self.replicas),
            "min.insync.replicas": str(max(self.replicas - 1, 1)),
            **(settings or {}),
        }
        self._kind = kind
        self._client_options = dict(client_options or {})
        self._folder = folder
        self._brokers = {each: self._make(each) for each in range(brokers)}
        self._watch: ClusterWatch | None = None

    def _make(self, number: int) -> BrokerHandle:
        settings = {**self.settings, "node.id": str(number)}
        return self._kind(self._folder / str(number), settings, metadata=self._folder / "metadata.db")

    @property
    def brokers(self) -> tuple[BrokerHandle, ...]:
        """All brokers in the order of their ids, running or not."""
        return tuple(self._brokers.values())

    # Lifecycle

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Starts all brokers that are not running, and returns when each sees all others."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._watch is None:
            self._watch = self._new_watch()
        waiting = [each for each in self.brokers if not each.is_running]
        try:
            for first in waiting[:1]:
                # The first broker creates the metadata of the cluster.
                first.start()
            with ThreadPoolExecutor(len(self.brokers)) as threads:
                list(threads.map(lambda each: each.start(), waiting[1:]))
            self.wait_brokers()
        except BaseException:
            self.close()
            raise

    def _new_watch(self) -> "ClusterWatch":
        from ottla.client.options import ClientConfig, configured
        from ottla.testing.cluster_watch import ClusterWatch

        return ClusterWatch(configured(ClientConfig, type(self).__name__, self._client_options).security)

    def close(self) -> None:
        """Stops all brokers, running, paused or not; only their folders remain."""
        watch, self._watch = self._watch, None
        with ExitStack() as everything:
            if watch is not None:
                everything.callback(watch.close)
            for each in self.brokers:
                everything.callback(each.close)
            for each in self.brokers:
                each.resume()

    def restart(self) -> None:
        """A rolling restart: restarts each broker when the one before is in sync again."""
        for each in self.brokers:
            each.restart()
            self.wait_in_sync()

    def grow(self) -> BrokerHandle:
        """Adds a broker, and returns when all others see it. It has no replicas until some are assigned."""
        number = max(self._brokers) + 1
        self._brokers[number] = self._make(number)
        self._brokers[number].start()
        self.wait_brokers()
        return self._brokers[number]

    def retire(self, broker: BrokerHandle) -> None:
        """Removes a broker after a clean stop; its replicas should have been moved away."""
        del self._brokers[broker.id]
        broker.close()
        self.wait_brokers()

    # Use

    @property
    def bootstrap(self) -> str:
        """The addresses for `bootstrap_servers`, separated by commas; they stay the same across restarts."""
        return ",".join(each.bootstrap for each in self.brokers)

    @property
    def answering(self) -> list[BrokerHandle]:
        """The brokers that run and are not paused."""
        return [each for each in self.brokers if each.is_running and not each.is_paused]

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        replicas: int | None = None,
    ) -> str:
        """Creates a topic and returns its name when every running broker sees its leaders.

        With fewer replicas than the default, `min.insync.replicas` is lower too, unless it is among the configs.
        """
        asked = ",".join(each.bootstrap for each in self._need_answering())
        wanted = dict(configs or {})
        if replicas is not None and replicas < self.replicas:
            wanted = {"min.insync.replicas": str(max(replicas - 1, 1)), **wanted}
        count = self.replicas if replicas is None else replicas
        create_topic(asked, name, partitions, wanted, count, **self._client_options)
        self._wait(lambda views: all(_is_led(view, name) for view in views), f"topic {name} to be led everywhere")
        return name

    def leader_of(self, topic: str, partition: int = 0, *, timeout: float = TIMEOUT_SECONDS) -> BrokerHandle:
        """The leader of a partition, once all brokers that answer agree on it and it is one of them.

        Raises TimeoutError, as all methods that wait.
        """
        answering = {each.id: each for each in self._need_answering()}

        def is_known(views: "list[ClusterView]") -> bool:
            leaders = {_leader(view, topic, partition) for view in views}
            return len(leaders) == 1 and leaders <= answering.keys()

        views = self._wait(is_known, f"{topic}-{partition} to have a leader that answers", timeout)
        return answering[_leader(views[0], topic, partition) or 0]

    def followers_of(self, topic: str, partition: int = 0) -> list[BrokerHandle]:
        """The other brokers with a replica, running or not."""
        leader = self.leader_of(topic, partition)
        views = self._wait(lambda views: _partition(views[0], topic, partition) is not None, f"{topic}-{partition}")
        found = _partition(views[0], topic, partition)
        return [self._brokers[each] for each in (found.replicas if found else ()) if each != leader.id]

    def wait_brokers(self, *, timeout: float = TIMEOUT_SECONDS) -> None:
        """Returns when all brokers that answer agree that they are the brokers of the cluster."""
        ids = {each.id for each in self._need_answering()}
        self._wait(
            lambda views: all(ids == view.brokers.keys() and view.controller in ids for view in views),
            f"brokers {sorted(ids)} to be the cluster",
            timeout,
        )

    def wait_in_sync(self, topic: str | None = None, *, timeout: float = TIMEOUT_SECONDS) -> None:
        """Returns when all brokers that answer agree that every replica of a topic (None: of all topics) is in sync.

        This cannot happen while a broker with a replica is down.
        """
        self._wait(
            lambda views: all(_is_in_sync(view, topic) for view in views),
            f"{'all topics' if topic is None else topic} to be in sync",
            timeout,
        )

    def _need_answering(self) -> list[BrokerHandle]:
        found = self.answering
        if not found:
            raise MisuseError("no broker of the cluster answers; `start` or `resume` one first")
        return found

    def _wait(self, is_so: "_Question", what: str, timeout: float = TIMEOUT_SECONDS) -> "list[ClusterView]":
        if self._watch is None:
            raise MisuseError("the cluster is not running; `start` it first")
        last: list[ClusterView] = []

        def look(views: "list[ClusterView]") -> bool:
            last[:] = views
            return is_so(views)

        addresses = [each.bootstrap for each in self._need_answering()]
        with suppress(TimeoutError):
            return self._watch.wait_views(lambda: addresses, look, timeout)
        raise TimeoutError(f"waited {timeout:g} s for {what}; the brokers say: {_spell(last)}")


def _partition(view: "ClusterView", topic: str, partition: int) -> "PartitionView | None":
    found = view.topics.get(topic)
    return found.partitions[partition] if found is not None and partition < len(found.partitions) else None


def _leader(view: "ClusterView", topic: str, partition: int) -> int | None:
    found = _partition(view, topic, partition)
    return None if found is None else found.leader


def _is_led(view: "ClusterView", topic: str) -> bool:
    found = view.topics.get(topic)
    return found is not None and all(each.leader is not None for each in found.partitions)


def _is_in_sync(view: "ClusterView", topic: str | None) -> bool:
    if topic is not None and topic not in view.topics:
        return False
    topics = view.topics.values() if topic is None else [view.topics[topic]]
    return all(
        each.leader is not None and set(each.isr) == set(each.replicas) for found in topics for each in found.partitions
    )


def _spell(views: "list[ClusterView]") -> str:
    lines = [
        f"{topic.name}-{each.index}: leader {each.leader}, in sync {list(each.isr)} of {list(each.replicas)}"
        for view in views[:1]
        for topic in view.topics.values()
        for each in topic.partitions
    ]
    brokers = [sorted(view.brokers) for view in views]
    return f"brokers {brokers}; {'; '.join(lines[:20]) or 'no topics'}" if views else "nothing"
