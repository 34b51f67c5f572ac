"""The names of queues: record headers, companion topics, and the kinds of companions. Pure."""

from enum import Enum
from typing import Final

# Headers that clients set

DELIVER_AT_MS: Final = "ottla.deliver-at-ms"
DELAY_MS: Final = "ottla.delay-ms"
DELAY_ID: Final = "ottla.delay.id"
DELAY_CANCEL: Final = "ottla.delay.cancel"
DELAY_REPLACE: Final = "ottla.delay.replace"
TTL_MS: Final = "ottla.ttl-ms"
RETRY_REASON: Final = "ottla.retry.reason"
RETRY_EXCEPTION: Final = "ottla.retry.exception"
RETRY_REJECT: Final = "ottla.retry.reject"
RETRY_BEHIND: Final = "ottla.retry.behind"
"""`true` if the record was handed back only to stay behind another of its key; the broker removes it."""
RETRY_ORIGIN: Final = "ottla.retry.origin"
"""`topic/partition/offset` of the record's first delivery, before it was handed back for the first time."""
RELEASE: Final = "ottla.release"
"""The offset of a parked record of the same partition that is due now. The record with this header is not parked."""
CANCEL: Final = "ottla.cancel"
"""The offset of a parked record of the same partition that is not delivered. The record itself is not parked."""
HALF_ID: Final = "ottla.half.id"
HALF_STATE: Final = "ottla.half.state"
HALF_CHECK_AFTER_MS: Final = "ottla.half.check-after-ms"

CLIENT_HEADERS: Final = (
    *(DELIVER_AT_MS, DELAY_MS, DELAY_ID, DELAY_CANCEL, DELAY_REPLACE, TTL_MS),
    *(RETRY_REASON, RETRY_EXCEPTION, RETRY_REJECT, RETRY_BEHIND, RETRY_ORIGIN, RELEASE, CANCEL),
    *(HALF_ID, HALF_STATE, HALF_CHECK_AFTER_MS),
)
HEADER_PREFIX: Final = "ottla."
"""How all of them begin."""

# Headers that the broker sets; those of clients are removed

DUE_MS: Final = "ottla.due-ms"
"""When the record is or was due, by the broker's clock, in milliseconds since the epoch."""
ORIGIN: Final = "ottla.origin"
"""`topic/partition/offset` of the parked record that this one was made from."""
RETRY_ATTEMPT: Final = "ottla.retry.attempt"
"""How often the record was handed back, counted by the broker."""
RETRY_TOKEN: Final = "ottla.retry.token"
"""Proves that the broker counted the attempts."""
DEAD: Final = "ottla.dead"
"""Why the record goes to the dead-letter topic."""
HALF_CHECKS: Final = "ottla.half.checks"
"""How often the producer of a half message has been asked for its decision."""
HALF_HOPS: Final = "ottla.half.hops"
"""How many partitions did not know the id of a decision, counted while the broker looks for the half message."""

NO_DECISION: Final = "half message: no decision"
REPEATED_ID: Final = "half message: repeated id"
"""How the reasons of dead letters begin that are half messages which were never committed."""

REDRIVE_COUNT: Final = "ottla.redrive.count"
"""How often a dead letter was sent back to its topic; set by the command that does it."""
REDRIVE_TIMESTAMP: Final = "ottla.redrive.timestamp"
"""The first timestamp of a dead letter that was sent back with a new one, in milliseconds since the epoch."""

BROKER_HEADERS: Final = (DUE_MS, ORIGIN, RETRY_ATTEMPT, RETRY_TOKEN, RETRY_BEHIND, DEAD, HALF_CHECKS, HALF_HOPS)

# Topic configs that clients look at

TTL_ENABLE: Final = "ottla.ttl.enable"
"""Whether records expire by their header."""
TTL_DEFAULT_MS: Final = "ottla.ttl.ms"
"""The TTL of records without the header; -1 for none."""


class CompanionKind(Enum):
    """What a companion topic is for; the value is that of the config `ottla.companion.kind`."""

    DELAYED = "delayed"
    RETRY = "retry"
    REDELIVERY = "redelivery"
    HALF = "half"
    HALF_CHECKS = "half-checks"
    DEAD_LETTERS = "dead-letters"


PARKING_KINDS: Final = frozenset({CompanionKind.DELAYED, CompanionKind.RETRY, CompanionKind.HALF})
"""Companions that hold parked records: only the broker consumes them."""


def delayed_topic(topic: str) -> str:
    """Records produced here are delivered to `topic` when they are due."""
    return f"{topic}.delayed"


def retry_topic(topic: str, group: str) -> str:
    """Records of `topic` that `group` hands back are produced here."""
    return f"{topic}.{group}.retry"


def redelivery_topic(topic: str, group: str) -> str:
    """Where records that were handed back return, after their backoff; the group subscribes to it beside `topic`."""
    return f"{topic}.{group}.redelivery"


def half_topic(topic: str) -> str:
    """Half messages and their decisions are produced here."""
    return f"{topic}.half"


def half_checks_topic(topic: str) -> str:
    """Where the broker asks for the decision about a half message."""
    return f"{topic}.half-checks"


def dead_letter_topic(topic: str) -> str:
    """The dead-letter topic of a topic that does not configure another."""
    return f"dlq.{topic}"
