"""Whom a client quota applies to."""

from dataclasses import dataclass
from typing import Final

DEFAULT_NAME: Final = ""
"""The default entity of a type: for all names that have no quota of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaEntity:
    """A user, a client id, both, or an address. "" is the default entity of that type, None means not part of it."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None
