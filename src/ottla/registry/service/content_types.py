"""Which content types a request may have, and which one its answer gets. Pure."""

from functools import lru_cache
from typing import Final

from ottla.registry.service.http_messages import http_error

V1: Final = "application/vnd.schemaregistry.v1+json"
ANSWERED: Final = (V1, "application/vnd.schemaregistry+json", "application/json")
"""In order of preference."""
_READ: Final = frozenset({*ANSWERED, "application/octet-stream"})
"""Octets are what a client sends that does not say what it sends."""


@lru_cache(maxsize=256)
def answer_type(accept: str) -> str:
    """The type of the answer for an Accept header; "" accepts everything. Raises `RegistryError` (406)."""
    if not accept.strip():
        return V1
    best, found = 0.0, ""
    for part in accept.split(","):
        wanted, _, parameters = part.partition(";")
        quality = _quality(parameters)
        match = _match(wanted.strip().lower())
        if match and quality > best:
            best, found = quality, match
    if not found:
        raise http_error(406)
    return found


def _match(wanted: str) -> str:
    if wanted in ("*/*", "application/*", "*"):
        return V1
    return wanted if wanted in ANSWERED else ""


def _quality(parameters: str) -> float:
    for each in parameters.split(";"):
        name, _, value = each.strip().partition("=")
        if name == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


@lru_cache(maxsize=256)
def check_request_type(content_type: str) -> None:
    """Raises `RegistryError` (415) for a body that is not said to be JSON."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind and kind not in _READ:
        raise http_error(415)
