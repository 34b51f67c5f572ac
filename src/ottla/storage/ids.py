"""Ids of topics, clusters and data dirs: 16 random bytes, written as URL-safe base64 without padding."""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import UUID

from ottla.env.ports import Random


def random_id(random: Random) -> str:
    """A new id; never one that begins with a dash, which command lines would take for an option."""
    while True:
        text = urlsafe_b64encode(random.randbytes(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def parse_id(text: str) -> UUID | None:
    """The id that a text spells; None for any text that is not 16 bytes in the form of `random_id`."""
    try:
        content = urlsafe_b64decode(text.encode("ascii") + b"==")
    except (UnicodeEncodeError, binascii.Error):
        return None
    if len(content) != 16 or urlsafe_b64encode(content).decode().rstrip("=") != text:
        return None
    return UUID(bytes=content)
