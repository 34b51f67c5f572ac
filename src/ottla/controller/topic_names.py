"""Which names a topic may have. The rules are Kafka's, since folders, metrics and clients rely on them."""

import re
from typing import Final

NAME_CHARACTERS_MAX: Final = 249
"""A folder is called by the topic and its partition, and file systems end at 255."""
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def fault_of_name(name: str) -> str | None:
    """What is wrong with a topic's name, or None."""
    if not name:
        return "a topic's name must not be empty"
    if name in (".", ".."):
        return f"a topic must not be called {name!r}, which means a folder"
    if len(name) > NAME_CHARACTERS_MAX:
        return f"a topic's name has at most {NAME_CHARACTERS_MAX} characters, this one has {len(name)}"
    if _LEGAL.fullmatch(name) is None:
        return f"a topic's name has only ASCII letters, digits, '.', '_' and '-': {name!r} has others"
    return None


def collision_key(name: str) -> str:
    """The same for two names that metrics cannot tell apart, where a dot becomes an underscore."""
    return name.replace(".", "_")
