"""The keys of ACLs, SCRAM credentials, client quotas and delegation tokens, in both directions. Pure.

| key | lives |
|---|---|
| `acls/<resource type>/<pattern type>/<name>/<principal>/<host>/<operation>/<permission>` | from create to delete |
| `scram-credentials/<mechanism>/<user>` | while the user has a password for the mechanism |
| `client-quotas/user/<name>/client-id/<name>`, either alone, or `client-quotas/ip/<address>` | while any is set |
| `delegation-tokens/<id>` | from create until it is expired |

Names may be any text: all but letters, digits and `_.-~` is percent-encoded, and `<default>` is a default entity. Each
thing has one key; any other spelling raises CorruptError, since a later change would not find it.
"""

from collections.abc import Callable
from typing import Final, TypeVar
from urllib.parse import quote, unquote

from ottla.model.errors import CorruptError
from ottla.security.acls import AclBinding, PatternType, Permission
from ottla.security.quota_entity import QuotaEntity
from ottla.security.resources import Operation, ResourceType
from ottla.security.scram_credential import ScramMechanism

ACLS: Final = "acls"
SCRAM_CREDENTIALS: Final = "scram-credentials"
CLIENT_QUOTAS: Final = "client-quotas"
DELEGATION_TOKENS: Final = "delegation-tokens"
"""The first parts of these keys."""

_DEFAULT: Final = "<default>"
"""No encoded name looks like this."""
T = TypeVar("T")


def acl_key(binding: AclBinding) -> str:
    """The key of an ACL, which has all of its fields."""
    parts = (
        ACLS,
        binding.resource_type.name,
        binding.pattern_type.name,
        _encoded(binding.name),
        _encoded(binding.principal),
        _encoded(binding.host),
        binding.operation.name,
        binding.permission.name,
    )
    return "/".join(parts)


def acl_of(key: str) -> AclBinding:
    """The ACL with this key. Raises CorruptError."""

    def parse() -> AclBinding:
        _, resource_type, pattern_type, name, principal, host, operation, permission = key.split("/")
        return AclBinding(
            resource_type=ResourceType[resource_type],
            pattern_type=PatternType[pattern_type],
            name=unquote(name),
            principal=unquote(principal),
            host=unquote(host),
            operation=Operation[operation],
            permission=Permission[permission],
        )

    return _parsed(key, parse, acl_key)


def scram_key(mechanism: ScramMechanism, user: str) -> str:
    """The key of a user's credential for a mechanism."""
    return f"{SCRAM_CREDENTIALS}/{mechanism.value}/{_encoded(user)}"


def scram_user_of(key: str) -> tuple[ScramMechanism, str]:
    """Mechanism and user of a credential's key. Raises CorruptError."""

    def parse() -> tuple[ScramMechanism, str]:
        _, mechanism, user = key.split("/")
        return ScramMechanism(mechanism), unquote(user)

    return _parsed(key, parse, lambda found: scram_key(*found))


def quota_key(entity: QuotaEntity) -> str:
    """The key of the quotas of an entity, which must have at least one part."""
    parts = [CLIENT_QUOTAS]
    for kind, name in (("user", entity.user), ("client-id", entity.client_id), ("ip", entity.ip)):
        if name is not None:
            parts += [kind, _encoded(name) if name else _DEFAULT]
    return "/".join(parts)


def quota_entity_of(key: str) -> QuotaEntity:
    """The entity whose quotas have this key. Raises CorruptError."""

    def parse() -> QuotaEntity:
        _, *parts = key.split("/")
        if not parts or len(parts) % 2:
            raise ValueError("a type without a name")
        names = {
            kind.replace("-", "_"): "" if name == _DEFAULT else unquote(name)
            for kind, name in zip(parts[::2], parts[1::2], strict=True)
        }
        if not names.keys() <= {"user", "client_id", "ip"}:
            raise ValueError("an unknown type")
        return QuotaEntity(**names)

    return _parsed(key, parse, quota_key)


def token_key(token_id: str) -> str:
    """The key of a delegation token."""
    return f"{DELEGATION_TOKENS}/{_encoded(token_id)}"


def token_id_of(key: str) -> str:
    """The id of the delegation token with this key. Raises CorruptError."""

    def parse() -> str:
        _, token_id = key.split("/")
        return unquote(token_id)

    return _parsed(key, parse, token_key)


def _encoded(text: str) -> str:
    return quote(text, safe="")


def _parsed(key: str, parse: Callable[[], T], key_of: Callable[[T], str]) -> T:
    try:
        found = parse()
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError(f"{key!r} in the metadata store cannot be read ({error}): remove it") from error
    if key_of(found) != key:
        raise CorruptError(f"{key!r} in the metadata store should be {key_of(found)!r}: rename or remove it")
    return found
