"""What a data dir records about the cluster's metadata: its version when the broker last acted on it.

Written after folders were created or removed, once a second if the metadata changes, and at a clean shutdown. A
metadata store with an older version was restored from a backup, or lost. Acting on it could remove partitions that it
does not know, or elect a replica that lacks records.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ottla.env.ports import Disk, Random
from ottla.model.base64_ids import id_text, new_id
from ottla.model.errors import CorruptError
from ottla.model.ids import BrokerId, LeaderEpoch
from ottla.storage.data_dirs.checkpoints import read_properties

_LOGGER: Final = logging.getLogger(__name__)

LEADER_EPOCHS_UNWRITTEN_MAX: Final = 1000
"""More elections of one partition than can happen between two writes of the file, which are a second apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataSeen:
    """The newest metadata that a broker acted on."""

    history: str
    """Revisions of different histories cannot be compared; histories are numbered."""
    revision: int
    brokers: tuple[BrokerId, ...] = ()
    """All brokers that were registered or had replicas."""
    next_producer_id: int = 0
    """The first producer id that was not allocated."""
    leader_epoch: int = -1
    """The newest leader epoch of any partition, including epochs in which nothing was written."""
    newest_key: str = ""
    """The key of the topic or partition that changed last. The store's revision alone does not show that a store is
    older: the revision of a backup grows when the sessions in it expire."""
    newest_key_revision: int = 0

    def newest_epoch(self, *, is_clean: bool) -> LeaderEpoch:
        """The newest leader epoch that a log in the data dir can have. A clean shutdown writes the file last."""
        return LeaderEpoch(self.leader_epoch + (0 if is_clean else LEADER_EPOCHS_UNWRITTEN_MAX))

    def is_newer_than(self, history: str, revision: int) -> bool:
        """Whether a store with this history and revision is older than what was seen."""
        if self.history == history:
            return self.revision > revision
        return history_number(self.history) > history_number(history)


def next_history(histories: Iterable[str], random: Random) -> str:
    """The name of the next history. "" is a cluster's first; each recovery begins another."""
    return f"{max(map(history_number, histories), default=0) + 1}-{id_text(new_id(random.randbytes))}"


def history_number(history: str) -> int:
    """The number of recoveries that led to a history."""
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
    """What `encode_seen` wrote; None if the file does not exist or cannot be read, which is logged."""
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
        _LOGGER.warning("%s: cannot read the file, ignoring it: %s", path, error)
        return None
