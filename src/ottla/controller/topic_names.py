"""Which names a topic may have. The rules are Kafka's, since folders, metrics and clients rely on them."""

import re
from typing import Final

NAME_CHARACTERS_MAX: Final = 249
"""Folders are named by topic and partition, and file systems allow 255 characters."""
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def fault_of_name(name: str) -> str | None:
    """Why a topic must not have this name; None if it may."""
    if not name:
        return "a topic's name must not be empty"
    if name in (".", ".."):
        return f"a topic's name must not be {name!r}"
    if len(name) > NAME_CHARACTERS_MAX:
        return f"a topic's name may have at most {NAME_CHARACTERS_MAX} characters, not {len(name)}"
    if _LEGAL.fullmatch(name) is None:
        return f"{name!r} is not a valid topic name: use only ASCII letters, digits, '.', '_' and '-'"
    return None


def collision_key(name: str) -> str:
    """A name with dots as underscores: metrics cannot tell names apart that differ only in these."""
    return name.replace(".", "_")
