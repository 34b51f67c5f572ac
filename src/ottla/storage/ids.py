"""Ids of topics, clusters and data dirs: 16 random bytes, written as URL-safe base64 without padding."""

from base64 import urlsafe_b64encode

from ottla.env.ports import Random


def random_id(random: Random) -> str:
    """A new id; never one that begins with a dash, which command lines would take for an option."""
    while True:
        text = urlsafe_b64encode(random.randbytes(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text
