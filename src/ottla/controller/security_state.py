"""Decides changes of ACLs, SCRAM credentials, client quotas and delegation tokens. Pure.

The caller has checked the values. Each change is guarded by the revision of its key, so that of two brokers that change
the same thing, one decides again.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from ottla.controller.decisions import ControllerDecision
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import AclRecord, ClientQuotaRecord, encode, scram_record, token_record
from ottla.metadata.security_keys import acl_key, quota_key, scram_key, token_key
from ottla.metadata.store import Delete, Operation, Put
from ottla.model.errors import InvalidRequestError
from ottla.security.acls import AclBinding, AclFilter, FilterPatternType
from ottla.security.delegation_token import TOKENS_MAX, TokenInfo, TokenNotFoundError, TokenRequestNotAllowedError
from ottla.security.quota_entity import QuotaEntity
from ottla.security.scram_credential import ScramCredential, ScramMechanism

ScramChanges = Mapping[tuple[ScramMechanism, str], ScramCredential | None]
"""Credentials to set; None deletes one."""
QuotaChanges = Mapping[QuotaEntity, Mapping[str, float | None]]
"""Quotas to set, by entity; None removes one, those that are not named stay."""

_ACL: Final = encode(AclRecord())
_COMPARISONS_MAX: Final = 1_000_000
"""Of filters with ACLs in one decision: about a second. A filter that names its resource is compared with few."""


def decide_create_acls(image: ClusterImage, bindings: Sequence[AclBinding]) -> ControllerDecision[None]:
    """Adds ACLs; those that exist stay."""
    return ControllerDecision(
        operations=tuple(Put(acl_key(each), _ACL, 0) for each in dict.fromkeys(bindings) if each not in image.acls)
    )


def decide_find_acls(image: ClusterImage, filters: Sequence[AclFilter]) -> ControllerDecision[tuple[AclBinding, ...]]:
    """The ACLs that each filter selects; changes nothing. Raises InvalidRequestError if that would take long."""
    by_name: dict[str, list[AclBinding]] = {}
    for each in image.acls:
        by_name.setdefault(each.name, []).append(each)
    candidates: list[Collection[AclBinding]] = [
        image.acls if one.name is None or one.pattern_type is FilterPatternType.MATCH else by_name.get(one.name, ())
        for one in filters
    ]
    if sum(map(len, candidates)) > _COMPARISONS_MAX:
        raise InvalidRequestError(
            f"{len(filters)} filters are too many for {len(image.acls)} ACLs; send fewer filters in one request"
        )
    return ControllerDecision(
        outcomes=tuple(
            tuple(each for each in some if one.matches(each)) for one, some in zip(filters, candidates, strict=True)
        )
    )


def decide_remove_acls(image: ClusterImage, bindings: Sequence[AclBinding]) -> ControllerDecision[None]:
    """Removes those of these ACLs that exist."""
    keys = [acl_key(each) for each in dict.fromkeys(bindings) if each in image.acls]
    return ControllerDecision(operations=tuple(Delete(key, image.revision_of(key)) for key in keys))


def decide_scram_credentials(image: ClusterImage, changes: ScramChanges) -> ControllerDecision[tuple[str, bool]]:
    """Sets and deletes credentials; an outcome has a user, and whether the credential to delete exists."""
    operations: list[Operation] = []
    outcomes: list[tuple[str, bool]] = []
    for user, credential in changes.items():
        key = scram_key(*user)
        exists = user in image.scram_credentials
        if credential is not None:
            operations.append(Put(key, encode(scram_record(credential)), image.revision_of(key)))
        elif exists:
            operations.append(Delete(key, image.revision_of(key)))
        outcomes.append((user[1], credential is not None or exists))
    return ControllerDecision(operations=tuple(operations), outcomes=tuple(outcomes))


def decide_client_quotas(image: ClusterImage, changes: QuotaChanges) -> ControllerDecision[None]:
    """Sets and removes quotas."""
    operations: list[Operation] = []
    for entity, change in changes.items():
        key, current = quota_key(entity), image.client_quotas.get(entity, {})
        quotas = {name: value for name, value in {**current, **change}.items() if value is not None}
        if quotas == current:
            continue
        revision = image.revision_of(key)
        value = encode(ClientQuotaRecord(quotas=quotas))
        operations.append(Put(key, value, revision) if quotas else Delete(key, revision))
    return ControllerDecision(operations=tuple(operations))


def decide_create_token(image: ClusterImage, token: TokenInfo) -> ControllerDecision[TokenInfo]:
    """Adds a delegation token. Raises TokenRequestNotAllowedError if its requester has too many."""
    count = sum(each.requester == token.requester for each in image.delegation_tokens.values())
    if count >= TOKENS_MAX:
        raise TokenRequestNotAllowedError(f"{token.requester} has {count} tokens; at most {TOKENS_MAX} are allowed")
    return ControllerDecision(operations=(Put(token_key(token.id), encode(token_record(token)), 0),), outcomes=(token,))


def decide_change_token(
    image: ClusterImage, token_id: str, change: Callable[[TokenInfo], TokenInfo | None]
) -> ControllerDecision[TokenInfo | None]:
    """Replaces a delegation token by what `change` makes of it; None removes it. Raises TokenNotFoundError, and what
    `change` raises."""
    token = image.delegation_tokens.get(token_id)
    if token is None:
        raise TokenNotFoundError("there is no such delegation token")
    key, changed = token_key(token_id), change(token)
    revision = image.revision_of(key)
    if changed is None:
        return ControllerDecision(operations=(Delete(key, revision),), outcomes=(None,))
    return ControllerDecision(operations=(Put(key, encode(token_record(changed)), revision),), outcomes=(changed,))


def decide_remove_expired_tokens(image: ClusterImage, now_ms: int, limit: int) -> ControllerDecision[str]:
    """Removes delegation tokens that have expired; the outcomes are their ids, `limit` at most."""
    ids = [token.id for token in image.delegation_tokens.values() if token.is_expired(now_ms)][:limit]
    keys = map(token_key, ids)
    return ControllerDecision(
        operations=tuple(Delete(key, image.revision_of(key)) for key in keys), outcomes=tuple(ids)
    )
