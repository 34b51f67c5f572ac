"""`ottla serve --brokers N`: the settings of each of several brokers on one machine.

Ids, ports and metrics ports count up from those of the first broker. The first broker uses the data dir itself, so that
a single broker can be extended to several; the others use `brokers/ID` in it. They share the metadata file of the data
dir, unless `--metadata` names another store. `ottla.broker.supervisor` runs the processes.
"""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

from ottla.broker.configs.configuration import BrokerConfig
from ottla.broker.configs.listener_config import Endpoint
from ottla.cli.serve.metadata_option import EMBEDDED
from ottla.model.errors import InvalidConfigError

BROKERS_FOLDER: Final = "brokers"
BROKERS_MAX: Final = 64
REGISTRY_URL: Final = "confluent.schema.registry.url"
_THIS_MACHINE: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where to find a registry that listens on all addresses."""
_PORT_MAX: Final = 65535
_BUSY_TIMEOUT_MS: Final = 5_000
_CHANGES_KEPT: Final = 5_000


def broker_ids(first: BrokerConfig, count: int) -> range:
    """The ids of the brokers. Raises InvalidConfigError if the number is out of range, or too large for the ports."""
    if not 1 <= count <= BROKERS_MAX:
        raise InvalidConfigError(f"--brokers {count}: must be from 1 to {BROKERS_MAX}")
    ports = sorted({each.port for each in first.endpoints if each.port})
    for port, following in pairwise(ports):
        if following - port < count:
            raise InvalidConfigError(
                f"--brokers {count}: the ports of each listener count up, so those of the listeners on ports {port} and"
                f" {following} collide; leave at least {count} between them"
            )
    return range(first.broker_id, first.broker_id + count)


def broker_settings(first: BrokerConfig, place: int, address: str | None) -> Mapping[str, str]:
    """The settings in which a broker differs from the first; `place` is 0 for the first. If the broker ran before, it
    keeps the port of `address`."""
    listeners = [_up(each, place) for each in first.endpoints]
    if address is not None and listeners[0].port == 0:
        listeners[0] = listeners[0]._replace(port=int(address.rpartition(":")[2]))
    settings = {"node.id": str(first.broker_id + place), "listeners": _spell(listeners)}
    if first.advertised_endpoints:
        settings["advertised.listeners"] = _spell([_up(each, place) for each in first.advertised_endpoints])
    if place:
        folders = [f"{each}/{BROKERS_FOLDER}/{first.broker_id + place}" for each in first.log_dirs]
        settings["log.dirs"] = ",".join(folders)
    return settings


def http_of(http: tuple[str, int] | None, place: int) -> tuple[str, int] | None:
    """The metrics address of the broker at that place."""
    return None if http is None else (http[0], _count_up(http[1], place))


def registry_settings(registry: tuple[str, int] | None, place: int, count: int) -> Mapping[str, str]:
    """Where the broker at that place finds the registries of this command, its own first. Nothing without a registry,
    or if the system chooses its port."""
    if registry is None or registry[1] == 0:
        return {}
    host = _THIS_MACHINE.get(registry[0], registry[0])
    ports = [_count_up(registry[1], each) for each in (place, *range(place), *range(place + 1, count))]
    return {REGISTRY_URL: ",".join(f"http://{f'[{host}]' if ':' in host else host}:{port}" for port in ports)}


def shared_metadata(first: BrokerConfig, metadata: str) -> str:
    """The metadata store of several brokers: that of the option; for `embedded`, the file in the data dir, shared."""
    from ottla.broker.broker import METADATA_FILE

    return f"sqlite:{first.log_dirs[0]}/{METADATA_FILE}" if metadata == EMBEDDED else metadata


def refuse_to_leave_replicas(first: BrokerConfig, brokers: range) -> None:
    """Raises InvalidConfigError if the data dir's cluster has replicas on brokers that would not run."""
    folder = Path(first.log_dirs[0])
    if not (folder / BROKERS_FOLDER).is_dir():
        return
    from ottla.broker.broker import METADATA_FILE
    from ottla.metadata.changes import image_of
    from ottla.metadata.sqlite.sqlite_file import SqliteFile

    path = folder / METADATA_FILE
    if not path.is_file():
        return
    file = SqliteFile(str(path), exclusive=False, busy_timeout_ms=_BUSY_TIMEOUT_MS, changes_kept=_CHANGES_KEPT)
    file.open()
    try:
        image = image_of(*file.snapshot())
    finally:
        file.close()
    left = [
        set(partition.replicas) - set(brokers)
        for topic in image.topics.values()
        for partition in topic.partitions
        if not set(partition.replicas) <= set(brokers)
    ]
    if left:
        missing = sorted(set().union(*left))
        raise InvalidConfigError(
            f"--brokers {len(brokers)}: {len(left)} partition(s) of {folder} have replicas on broker(s)"
            f" {', '.join(map(str, missing))}, which would not run; start with --brokers"
            f" {max(missing) - brokers.start + 1} and move the replicas with `ottla cluster reassign` first"
        )


def _up(endpoint: Endpoint, place: int) -> Endpoint:
    return endpoint._replace(port=_count_up(endpoint.port, place))


def _count_up(port: int, place: int) -> int:
    """The port at that place; port 0 picks a free port."""
    counted = port + place if port else 0
    if counted > _PORT_MAX:
        raise InvalidConfigError(
            f"ports count up from {port}, and {counted} is not a valid port; use a lower first port"
        )
    return counted


def _spell(endpoints: list[Endpoint]) -> str:
    return ",".join(
        f"{each.name}://{f'[{each.host}]' if ':' in each.host else each.host}:{each.port}" for each in endpoints
    )
