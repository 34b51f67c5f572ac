"""Partition folders under another partition's name: which of them can be renamed back. Pure.

Folders that were swapped are renamed back, since each of them has its identity in a file. A folder whose own name is
taken by another folder stays where it is and is not served: only the operator can tell which of the two is right.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ottla.model.ids import TopicPartition
from ottla.storage.data_dirs.partition_identity import PartitionIdentity

NameOf = Callable[[str], str | None]
"""The name of the topic with this id, if the cluster has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What to do with the folders of a data dir, by current name."""

    moves: dict[str, TopicPartition] = field(default_factory=dict)
    """Folders to rename, and the partitions they belong to."""
    refused: dict[TopicPartition, str] = field(default_factory=dict)
    """Partitions that must not be served from the folder of their name, or created without one, and why."""


def place(found: Mapping[str, tuple[TopicPartition | None, PartitionIdentity]], name_of: NameOf) -> Placement:
    """Compares each folder's name (None for a folder that was being renamed) with its identity."""
    homes = {name: _home(at, identity, name_of) for name, (at, identity) in found.items()}
    wanted = Counter(home for home in homes.values() if home is not None)
    misplaced = {name: home for name, home in homes.items() if home is not None and home != found[name][0]}
    staying = {at: name for name, (at, _) in found.items() if at is not None and name not in misplaced}
    placement = Placement()
    for name, home in misplaced.items():
        at = found[name][0]
        if home not in staying and wanted[home] == 1:
            placement.moves[name] = home
            continue
        why = (
            f"the folder {name} belongs to {home}, whose own folder exists too: find out which of them is right,"
            f" stop the broker, rename or remove the other one, and restart"
        )
        placement.refused[at or home] = why
        occupant = staying.get(home)
        if occupant is None or found[occupant][1].index is None:
            placement.refused[home] = why
    # A folder that cannot move blocks its name for the folder that would have moved there.
    while blocked := {name: home for name, home in placement.moves.items() if home in placement.refused}:
        for name, home in blocked.items():
            del placement.moves[name]
            at = found[name][0]
            placement.refused[at or home] = f"the folder {name} belongs to {home}, and {placement.refused[home]}"
    return placement


def _home(at: TopicPartition | None, identity: PartitionIdentity, name_of: NameOf) -> TopicPartition | None:
    """The partition a folder belongs to; None if unknown."""
    if identity.topic_id is None:
        return at
    topic = name_of(identity.topic_id) or identity.topic or (at.topic if at is not None else None)
    index = identity.index if identity.index is not None else (at.partition if at is not None else None)
    return TopicPartition(topic, index) if topic is not None and index is not None else at
