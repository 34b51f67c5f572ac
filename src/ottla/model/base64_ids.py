"""Ids of topics, clusters and data dirs: UUIDs, written as Kafka does: 22 characters of URL-safe base64."""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from uuid import UUID


def new_id(randbytes: Callable[[int], bytes]) -> UUID:
    """A random id whose text does not begin with a dash, which command lines would parse as an option."""
    while True:
        made = UUID(bytes=randbytes(16), version=4)
        if not id_text(made).startswith("-"):
            return made


def id_text(value: UUID) -> str:
    """An id as text, without padding."""
    return urlsafe_b64encode(value.bytes).decode("ascii").rstrip("=")


def parse_id(text: str) -> UUID | None:
    """The id in a text; None for any text that `id_text` does not write."""
    try:
        content = urlsafe_b64decode(text.encode("ascii") + b"==")
    except (UnicodeEncodeError, binascii.Error):
        return None
    if len(content) != 16 or id_text(found := UUID(bytes=content)) != text:
        return None
    return found
