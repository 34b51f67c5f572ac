"""The metadata store of a cluster, as `ottla serve --metadata` names it.

| written | store |
|---|---|
| `embedded` | a file in the data dir, for a cluster of one broker |
| `sqlite:PATH` | a file that several brokers on one machine share |
| `zookeeper://HOST:PORT,HOST:PORT/path` | a ZooKeeper ensemble, for brokers on several machines |
"""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.model.errors import InvalidConfigError

if TYPE_CHECKING:
    from ottla.broker.configs.configuration import BrokerConfig
    from ottla.env.ports import Clock
    from ottla.metadata.store import MetadataStore

EMBEDDED: Final = "embedded"
_SQLITE: Final = "sqlite:"
_ZOOKEEPER: Final = "zookeeper://"


def check_metadata_option(text: str) -> None:
    """Raises InvalidConfigError if the text does not name a store, or the client of the store is not installed."""
    if text == EMBEDDED or (text.startswith(_SQLITE) and len(text) > len(_SQLITE)):
        return
    if not text.startswith(_ZOOKEEPER):
        raise InvalidConfigError(
            f"--metadata {text}: expected embedded, sqlite:PATH, or zookeeper://HOST:PORT,HOST:PORT/path"
        )
    hosts, _, path = text.removeprefix(_ZOOKEEPER).partition("/")
    if not all(hosts.split(",")) or (path and not all(path.split("/"))):
        raise InvalidConfigError(f"--metadata {text}: expected zookeeper://HOST:PORT,HOST:PORT/path")
    if find_spec("kazoo") is None:
        raise InvalidConfigError(
            f"--metadata {text}: the ZooKeeper client is not installed; run pip install 'ottla[cluster]'"
        )


def metadata_store(text: str, config: "BrokerConfig", clock: "Clock") -> "MetadataStore | None":
    """The store that the option names; None for the embedded store. Raises as `check_metadata_option` does.

    The session of a broker ends `broker.session.timeout.ms` after its last heartbeat.
    """
    check_metadata_option(text)
    session_ms = config.broker_session_timeout_ms
    if text.startswith(_SQLITE):
        from ottla.metadata.sqlite.sqlite_store import SqliteStore

        path = Path(text.removeprefix(_SQLITE))
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return SqliteStore(str(path), clock, shared=True, lease_timeout_ms=session_ms)
    if text.startswith(_ZOOKEEPER):
        from ottla.metadata.zookeeper.security import zookeeper_security
        from ottla.metadata.zookeeper.zookeeper_store import ZooKeeperStore

        return ZooKeeperStore(
            text.removeprefix(_ZOOKEEPER),
            clock,
            security=zookeeper_security(config.values),
            session_timeout_ms=session_ms,
        )
    return None
