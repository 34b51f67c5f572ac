"""Types and promises of the compiled ShareAcknowledge."""

from typing import final
from uuid import UUID

from typing_extensions import Buffer

@final
class AcknowledgedBatch:
    """A range of offsets, with a type for each of them or one for all; nothing of this is checked."""

    first_offset: int
    last_offset: int
    """Inclusive."""
    acknowledge_types: tuple[int, ...]

@final
class ShareAcknowledgement:
    """The request."""

    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    is_renew_ack: bool
    """False in versions that have no renewals."""
    partitions: dict[tuple[UUID, int], list[AcknowledgedBatch]]
    """Those with batches, by topic id and index. Of a partition that is named twice, the last counts."""

def read_share_acknowledgement(version: int, body: Buffer) -> ShareAcknowledgement:
    """A request's body in any served version; raises ShapeError or UnicodeDecodeError if it is none.

    As careful with strangers as `shapes.py`: counts, lengths and nulls are checked, tagged fields stepped over.
    """
