"""What a data dir remembers of the cluster's metadata: how new it was when the broker last acted on it.

Written beside the checkpoints, after folders were made or removed, and at a clean shutdown. A metadata store that is
behind it was restored from a backup, or lost: to act on what it says could remove partitions that it has not heard of,
or make a leader of a replica that lacks records.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ottla.env.ports import Disk, Random
from ottla.model.errors import CorruptError
from ottla.model.ids import BrokerId
from ottla.storage.checkpoints import read_properties
from ottla.storage.ids import random_id

_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataSeen:
    """The newest metadata that a broker acted on."""

    history: str
    """Revisions of different histories cannot be compared; the histories themselves are numbered."""
    revision: int
    brokers: tuple[BrokerId, ...] = ()
    """All brokers that were registered or had replicas."""
    next_producer_id: int = 0
    """The first producer id that was not given out."""
    leader_epoch: int = -1
    """The newest leader epoch of any partition: one that was led and not written in is in no log."""
    newest_key: str = ""
    """The key of the topic or partition that changed last. The store's revision alone does not tell that a store is
    older: a backup's revision grows when the sessions in it expire."""
    newest_key_revision: int = 0

    def is_newer_than(self, history: str, revision: int) -> bool:
        """Whether a store with this history at this revision is behind what was seen."""
        if self.history == history:
            return self.revision > revision
        return history_number(self.history) > history_number(history)


def next_history(histories: Iterable[str], random: Random) -> str:
    """The name of a new history that follows these. "" is a cluster's first one; each recovery begins another."""
    return f"{max(map(history_number, histories), default=0) + 1}-{random_id(random)}"


def history_number(history: str) -> int:
    """How many recoveries led to a history."""
    number = history.partition("-")[0]
    return int(number) if number.isdecimal() else 0


def encode_seen(seen: MetadataSeen) -> bytes:
    """The file's content."""
    lines = {
        "version": "0",
        "history": seen.history,
        "revision": str(seen.revision),
        "brokers": ",".join(map(str, seen.brokers)),
        "next.producer.id": str(seen.next_producer_id),
        "leader.epoch": str(seen.leader_epoch),
        "newest.key": seen.newest_key,
        "newest.key.revision": str(seen.newest_key_revision),
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items()).encode()


def read_seen(disk: Disk, path: str) -> MetadataSeen | None:
    """What `encode_seen` wrote; None if there is no such file, or it cannot be read, which is reported."""
    if not disk.exists(path):
        return None
    try:
        lines = read_properties(disk, path)
        return MetadataSeen(
            history=lines["history"],
            revision=int(lines["revision"]),
            brokers=tuple(BrokerId(int(each)) for each in lines["brokers"].split(",") if each),
            next_producer_id=int(lines["next.producer.id"]),
            leader_epoch=int(lines["leader.epoch"]),
            newest_key=lines["newest.key"],
            newest_key_revision=int(lines["newest.key.revision"]),
        )
    except (CorruptError, KeyError, ValueError) as error:
        _LOGGER.warning("%s cannot be read and is ignored: %s", path, error)
        return None
