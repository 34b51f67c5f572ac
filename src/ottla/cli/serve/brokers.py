"""`ottla serve --brokers N`: what each of several brokers of one machine is told.

Ids, ports and the ports of metrics count up from the first broker's. The first one has the data dir itself, so that a
single broker's data dir can be grown; the others have `brokers/ID` in it. They share the metadata file of the data dir,
unless the cluster's metadata lives elsewhere. The processes are `ottla.broker.supervisor`'s.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.broker.configuration import BrokerConfig, Endpoint
from ottla.cli.serve.metadata_option import EMBEDDED
from ottla.model.errors import InvalidConfigError

BROKERS_FOLDER: Final = "brokers"
BROKERS_MAX: Final = 64
_PORT_MAX: Final = 65535
_BUSY_TIMEOUT_MS: Final = 5_000
_CHANGES_KEPT: Final = 5_000


def broker_ids(first: BrokerConfig, count: int) -> range:
    """The ids of so many brokers. Raises InvalidConfigError for a number that makes no sense."""
    if not 1 <= count <= BROKERS_MAX:
        raise InvalidConfigError(f"--brokers {count}: must be from 1 to {BROKERS_MAX}")
    return range(first.broker_id, first.broker_id + count)


def broker_settings(first: BrokerConfig, place: int, address: str | None) -> Mapping[str, str]:
    """What the broker at that place, 0 for the first, is told otherwise than the first; `address` is where it served
    before, whose port it keeps."""
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
    """Where that broker serves metrics."""
    return None if http is None else (http[0], _count_up(http[1], place))


def shared_metadata(first: BrokerConfig, metadata: str) -> str:
    """Where several brokers have their metadata: the option's word, but for a single broker's own file, which they
    share."""
    from ottla.broker.broker import METADATA_FILE

    return f"sqlite:{first.log_dirs[0]}/{METADATA_FILE}" if metadata == EMBEDDED else metadata


def refuse_to_leave_replicas(first: BrokerConfig, brokers: range) -> None:
    """Raises InvalidConfigError if the data dir's cluster has replicas on brokers that would not run."""
    folder = Path(first.log_dirs[0])
    if not (folder / BROKERS_FOLDER).is_dir():
        return
    from ottla.broker.broker import METADATA_FILE
    from ottla.metadata.changes import image_of
    from ottla.metadata.sqlite_file import SqliteFile

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
    """Any free port is any free port."""
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
