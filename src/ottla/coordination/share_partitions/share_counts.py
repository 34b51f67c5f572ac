"""What the share-partitions of a broker have done, in numbers of records unless said otherwise; for metrics."""

from dataclasses import dataclass, field
from typing import Final

ACKNOWLEDGEMENT_TYPES: Final = 5


@dataclass(slots=True)
class ShareCounts:
    """Counted once for each range of offsets, never for each record."""

    acquired: int = 0
    """Deliveries to members."""
    redelivered: int = 0
    """Those of them that were not the first delivery."""
    acknowledged: list[int] = field(default_factory=lambda: [0] * ACKNOWLEDGEMENT_TYPES)
    """By acknowledge type, as members sent them and the share-partition took them."""
    locks_expired: int = 0
    limit_reached: int = 0
    """Not delivered again because the delivery limit is reached."""
    dead_letters: int = 0
    """Written to a dead-letter topic."""
    dead_letters_failed: int = 0
    """Archived without a dead letter, since the dead-letter topic cannot have it."""
    dead_letter_retries: int = 0
    """Attempts to write dead letters that failed and are repeated."""
    fetches: int = 0
    """Reads of a share-partition that gave a member records."""
    fetched_bytes: int = 0
    acknowledgements_refused: int = 0
    """Acknowledgements of a partition in a request, of which nothing was taken."""
