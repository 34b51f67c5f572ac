"""The position of a reader in one partition, and what must happen before the partition can be read. Pure."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

UNKNOWN: Final = -1


class Phase(Enum):
    """What a partition waits for before it can be read."""

    UNKNOWN = "unknown"
    """The committed offset was not looked up yet. Exits: RESETTING, VALIDATING, FETCHING."""
    RESETTING = "resetting"
    """The leader is asked for the first offset, the end offset, or the offset of a timestamp. Exit: FETCHING."""
    VALIDATING = "validating"
    """The leader is asked whether its log still has the records before the position. Exits: FETCHING, RESETTING."""
    FETCHING = "fetching"
    """The partition is read. Exits: VALIDATING after a leader change, RESETTING if the offset is out of range."""


@dataclass(slots=True)
class PartitionState:
    """One partition that is read. `offset` is the next to hand out, known unless the phase is UNKNOWN or RESETTING."""

    phase: Phase = Phase.UNKNOWN
    offset: int = UNKNOWN
    offset_epoch: int = UNKNOWN
    """The leader epoch of the record before `offset`, if known."""
    end: int | None = None
    """Where reading stops, exclusive; None to read without end."""
    leader_epoch: int = UNKNOWN
    """The leader epoch that the position was last validated against."""
    reset_to: int | None = None
    """The timestamp that ListOffsets is asked for; set exactly while RESETTING."""
    retry_at: float = 0.0
    """No request for this partition before this time."""
    is_paused: bool = False
    high_watermark: int = UNKNOWN
    last_stable_offset: int = UNKNOWN
    log_start_offset: int = UNKNOWN
    read_replica: int = UNKNOWN
    """The follower that the leader named as nearer, to be read from until `read_replica_until`."""
    read_replica_until: float = 0.0

    @property
    def can_be_read(self) -> bool:
        """Whether its records may be fetched and handed out."""
        return self.phase is Phase.FETCHING and not self.is_paused

    @property
    def is_at_end(self) -> bool:
        """Whether everything up to `end` was handed out."""
        return self.end is not None and self.offset >= self.end
