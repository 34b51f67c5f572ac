"""Dead letters: records that no handler could take, as they are put aside in a topic of their own.

Key, value, headers and timestamp stay as they were; where the record came from, why it is there and how often it was
tried is added in headers, as UTF-8 text. Parallel consumers write them, and so do Spark's readers and pipelines, which
have no group and no tries, but a stack.
"""

from collections.abc import Iterable, Mapping
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
ORIGIN_TIMESTAMP: Final = PREFIX + "timestamp"
"""The record's own, in milliseconds."""
STACK: Final = PREFIX + "stack"
"""Where the error was raised, as Python prints it."""
PIPELINE: Final = PREFIX + "pipeline"
STEP: Final = PREFIX + "step"
"""The pipeline, and the step in it, that refused the record."""

_REASON_CHARACTERS_MAX: Final = 2000
_STACK_CHARACTERS_MAX: Final = 8000


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
    return with_story(record.headers, story)


def with_story(headers: Iterable[Header], story: Mapping[str, str]) -> list[Header]:
    """A record's own headers and those of a story; what an older story said under the same names is replaced."""
    kept = [header for header in headers if header[0] not in story]
    return [*kept, *((name, text.encode(errors="replace")) for name, text in story.items())]


def error_story(error: BaseException, stack: str) -> dict[str, str]:
    """What a story says about an error: reason, type and stack, none of them longer than a header should be."""
    return {
        REASON: (str(error) or type(error).__name__)[:_REASON_CHARACTERS_MAX],
        ERROR: f"{type(error).__module__}.{type(error).__qualname__}",
        STACK: stack[-_STACK_CHARACTERS_MAX:],
    }
