"""Which client quotas exist, and which entities may have them: the checks of Describe- and AlterClientQuotas. Pure.

Entities and components are as on the wire: types by name, None for the default entity of a type.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import ip_address
from typing import Final

from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError
from ottla.security.quota_entity import DEFAULT_NAME, QuotaEntity

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
_CLIENT_QUOTAS: Final = frozenset(
    {PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE}
)
_IP_QUOTAS: Final = frozenset({CONNECTION_CREATION_RATE})
_WHOLE_MAX: Final[Mapping[str, int]] = {
    PRODUCER_BYTE_RATE: 2**63 - 1,
    CONSUMER_BYTE_RATE: 2**63 - 1,
    CONNECTION_CREATION_RATE: 2**31 - 1,
}
"""Quotas that must be whole numbers, and the largest of each."""
_ROUNDING: Final = 1e-6


class MatchType(IntEnum):
    """How a component of a filter selects entities."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class UnknownEntityTypeError(InvalidRequestError):
    """A filter has an entity type that does not exist."""

    code = ErrorCode.UNSUPPORTED_VERSION


def quota_entity(parts: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of these types and names. Raises InvalidRequestError."""
    if not parts:
        raise InvalidRequestError("the quota entity is empty; name a user, a client id or an address")
    names: dict[str, str] = {}
    for kind, name in parts:
        if kind not in ENTITY_TYPES:
            raise InvalidRequestError(f"{kind[:100]!r} is not a quota entity type; use {', '.join(ENTITY_TYPES)}")
        if kind in names:
            raise InvalidRequestError(f"the quota entity has the type {kind} twice")
        if name == "":
            raise InvalidRequestError(
                f"the name of a quota entity of type {kind} must not be empty; null is the default"
            )
        names[kind] = DEFAULT_NAME if name is None else name
    if IP in names and len(names) > 1:
        raise InvalidRequestError("a quota entity of type ip cannot be combined with user or client-id")
    if names.get(IP):
        try:
            ip_address(names[IP])
        except ValueError as error:
            raise InvalidRequestError(f"{names[IP][:100]!r} is not an IP address") from error
    return QuotaEntity(user=names.get(USER), client_id=names.get(CLIENT_ID), ip=names.get(IP))


def entity_parts(entity: QuotaEntity) -> list[tuple[str, str | None]]:
    """Types and names of an entity as on the wire."""
    named = ((USER, entity.user), (CLIENT_ID, entity.client_id), (IP, entity.ip))
    return [(kind, None if name == DEFAULT_NAME else name) for kind, name in named if name is not None]


def checked_quota(entity: QuotaEntity, key: str, value: float) -> float:
    """The value of a quota, whole numbers as such. Raises InvalidRequestError."""
    check_quota_key(entity, key)
    if not math.isfinite(value) or value <= 0:
        raise InvalidRequestError(f"{key} must be greater than 0, but is {value}")
    if key not in _WHOLE_MAX:
        return value
    whole = math.floor(value + _ROUNDING)
    if abs(whole - value) > _ROUNDING:
        raise InvalidRequestError(f"{key} must be a whole number, but is {value}")
    if not 0 < whole <= _WHOLE_MAX[key]:
        raise InvalidRequestError(f"{key} must be from 1 to {_WHOLE_MAX[key]}, but is {value}")
    return float(whole)


def check_quota_key(entity: QuotaEntity, key: str) -> None:
    """Raises InvalidRequestError if the entity cannot have this quota."""
    allowed = _CLIENT_QUOTAS if entity.ip is None else _IP_QUOTAS
    if key not in allowed:
        raise InvalidRequestError(
            f"{key[:100]!r} is not a quota of this entity; it may have {', '.join(sorted(allowed))}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFilter:
    """Selects entities that have all components; a strict one only those that have no other types."""

    components: Mapping[str, tuple[MatchType, str | None]]
    strict: bool

    def matches(self, entity: QuotaEntity) -> bool:
        """Whether the entity is selected."""
        parts = dict(entity_parts(entity))
        if self.strict and len(parts) != len(self.components):
            return False
        for kind, (match_type, name) in self.components.items():
            if kind not in parts:
                return False
            if match_type is not MatchType.ANY and parts[kind] != name:
                return False
        return True


def quota_filter(components: Collection[tuple[str, int, str | None]], *, strict: bool) -> QuotaFilter:
    """The filter with these components: type, match type, name. Raises InvalidRequestError."""
    parsed: dict[str, tuple[MatchType, str | None]] = {}
    for kind, match_type, name in components:
        if not kind:
            raise InvalidRequestError("the entity type of a filter component must not be empty")
        if kind not in ENTITY_TYPES:
            raise UnknownEntityTypeError(f"{kind[:100]!r} is not a quota entity type; use {', '.join(ENTITY_TYPES)}")
        if kind in parsed:
            raise InvalidRequestError(f"the filter has the type {kind} twice")
        if match_type not in list(MatchType):
            raise InvalidRequestError(f"match type {match_type} is not valid; use 0 (exact), 1 (default) or 2 (any)")
        if match_type == MatchType.EXACT and name is None:
            raise InvalidRequestError(f"the filter's exact match of type {kind} needs a name")
        parsed[kind] = MatchType(match_type), name if match_type == MatchType.EXACT else None
    if IP in parsed and len(parsed) > 1:
        raise InvalidRequestError("a filter of type ip cannot be combined with user or client-id")
    return QuotaFilter(components=parsed, strict=strict)
