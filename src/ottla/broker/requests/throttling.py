"""Throttling: a response says for how long the client is throttled, is sent at once, and mutes its connection.

The pipeline asks for every request; Produce and Fetch ask here before they encode their response. Fetches of followers
and WriteTxnMarkers are exempt, as in Kafka, if the client may act for the cluster: they do not ask.
"""

from struct import Struct
from typing import Final

from ottla.protocol.scan import Request
from ottla.security.quotas import Quotas
from ottla.transport.connection import Slot

_MILLISECONDS: Final = Struct(">i")


def throttle(
    quotas: Quotas,
    request: Request,
    slot: Slot,
    response_bytes: int,
    *,
    mutation_ms: int = 0,
    is_answered: bool = True,
    decompressed_bytes: int = 0,
) -> int:
    """The throttle time in milliseconds; the connection will be muted for as long when the slot is complete.

    `mutation_ms` is the throttle time for the partitions that the request has created or deleted, or was refused.
    `decompressed_bytes` are charged as if they had been sent.
    """
    if quotas.is_unlimited:
        return 0
    throttle_ms = quotas.throttle_ms(
        slot.client,
        request.client_id,
        request.api_key,
        request_bytes=request.end - request.start + decompressed_bytes,
        response_bytes=response_bytes,
        counts_time=is_answered,
    )
    slot.throttle_ms = max(throttle_ms, mutation_ms)
    return slot.throttle_ms


def with_throttle(frame: bytes, position: int | None, throttle_ms: int) -> bytes:
    """A response frame with the throttle time at this position, from the end if negative; versions without the field
    have None."""
    if position is None or not throttle_ms:
        return frame
    if position < 0:
        position += len(frame)
    return frame[:position] + _MILLISECONDS.pack(throttle_ms) + frame[position + _MILLISECONDS.size :]
