"""Dead letters: records that no handler could take, as they are put aside in a topic of their own.

Key, value, headers and timestamp stay as they were; where the record came from, why it is there and how often it was
tried is added in headers, as UTF-8 text.
"""

from typing import Final

from ottla.client.values import ConsumerRecord, Header

PREFIX: Final = "ottla.dead."
ORIGIN_TOPIC: Final = PREFIX + "topic"
ORIGIN_PARTITION: Final = PREFIX + "partition"
ORIGIN_OFFSET: Final = PREFIX + "offset"
GROUP: Final = PREFIX + "group"
REASON: Final = PREFIX + "reason"
ERROR: Final = PREFIX + "error"
ATTEMPTS: Final = PREFIX + "attempts"

_REASON_CHARACTERS_MAX: Final = 2000


def dead_letter_headers(record: ConsumerRecord, error: BaseException, *, attempts: int, group_id: str) -> list[Header]:
    """The record's own headers and those that tell its story; an older story is replaced."""
    reason = str(error) or type(error).__name__
    story = {
        ORIGIN_TOPIC: record.topic,
        ORIGIN_PARTITION: str(record.partition),
        ORIGIN_OFFSET: str(record.offset),
        GROUP: group_id,
        REASON: reason[:_REASON_CHARACTERS_MAX],
        ERROR: f"{type(error).__module__}.{type(error).__qualname__}",
        ATTEMPTS: str(attempts),
    }
    kept = [header for header in record.headers if header[0] not in story]
    return [*kept, *((name, text.encode(errors="replace")) for name, text in story.items())]
