"""Changes of ACLs, users, quotas and tokens: which operations are decided, and on what they depend."""

from dataclasses import replace

import pytest

from ottla.controller.security_state import (
    decide_change_token,
    decide_client_quotas,
    decide_create_acls,
    decide_create_token,
    decide_find_acls,
    decide_remove_acls,
    decide_remove_expired_tokens,
    decide_scram_credentials,
)
from ottla.metadata.changes import apply, changes_of
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import encode, token_record
from ottla.metadata.security_keys import acl_key, quota_key, scram_key, token_key
from ottla.metadata.store import Delete, Put
from ottla.metadata.store import Operation as StoreOperation
from ottla.model.errors import InvalidRequestError
from ottla.security.acls import AclBinding, AclFilter, FilterPatternType, PatternType, Permission
from ottla.security.delegation_token import TOKENS_MAX, TokenInfo, TokenNotFoundError, TokenRequestNotAllowedError
from ottla.security.principals import Principal
from ottla.security.quota_entity import QuotaEntity
from ottla.security.resources import Operation, ResourceType
from ottla.security.scram_credential import ScramCredential, ScramMechanism

CREDENTIAL = ScramCredential(b"salt", b"stored", b"server", 4096)
USER = (ScramMechanism.SHA_256, "u")
ALICE = Principal("User", "alice")


def committed(image: ClusterImage, *operations: StoreOperation) -> ClusterImage:
    revision = image.revision + 1
    return apply(image, changes_of(revision, operations))


def acl(name: str, pattern_type: PatternType = PatternType.LITERAL) -> AclBinding:
    return AclBinding(
        resource_type=ResourceType.TOPIC,
        pattern_type=pattern_type,
        name=name,
        principal="User:u",
        host="*",
        operation=Operation.READ,
        permission=Permission.ALLOW,
    )


def token(token_id: str, expiry_ms: int) -> TokenInfo:
    return TokenInfo(
        id=token_id, owner=ALICE, requester=ALICE, renewers=(), issued_ms=0, expiry_ms=expiry_ms, max_ms=1000
    )


def with_tokens(*tokens: TokenInfo) -> ClusterImage:
    return committed(ClusterImage(), *(Put(token_key(each.id), encode(token_record(each)), 0) for each in tokens))


def test_an_acl_is_created_once() -> None:
    decision = decide_create_acls(ClusterImage(), [acl("a"), acl("a"), acl("b")])
    assert [(acl_key(acl("a")), 0), (acl_key(acl("b")), 0)] == [
        (each.key, each.expected) for each in decision.operations if isinstance(each, Put)
    ]
    image = committed(ClusterImage(), *decision.operations)
    assert {acl("a"), acl("b")} == image.acls
    assert () == decide_create_acls(image, [acl("a")]).operations
    assert (Delete(acl_key(acl("a")), 1),) == decide_remove_acls(image, [acl("a"), acl("absent")]).operations


def test_filters_select_by_name() -> None:
    acls = [acl("abc"), acl("*"), acl("ab", PatternType.PREFIXED), acl("abc", PatternType.PREFIXED), acl("x")]
    image = committed(ClusterImage(), *decide_create_acls(ClusterImage(), acls).operations)
    cases = {
        AclFilter(): set(acls),
        AclFilter(name="abc"): {acls[0], acls[3]},
        AclFilter(name="abc", pattern_type=FilterPatternType.MATCH): {acls[0], acls[1], acls[2], acls[3]},
        AclFilter(name="abc", pattern_type=FilterPatternType.LITERAL): {acls[0]},
        AclFilter(name="ab", pattern_type=FilterPatternType.PREFIXED): {acls[2]},
        AclFilter(pattern_type=FilterPatternType.PREFIXED): {acls[2], acls[3]},
        AclFilter(name="*"): {acls[1]},
        AclFilter(principal="User:v"): set(),
        AclFilter(principal="User:*"): set(),
        AclFilter(host="*"): set(acls),
        AclFilter(operation=Operation.ALL): set(),
        AclFilter(permission=Permission.DENY): set(),
        AclFilter(resource_type=ResourceType.GROUP): set(),
    }
    found = decide_find_acls(image, list(cases)).outcomes
    assert list(cases.values()) == [set(each) for each in found]


def test_too_much_work_for_filters_is_refused() -> None:
    image = committed(
        ClusterImage(), *decide_create_acls(ClusterImage(), [acl(f"t{number}") for number in range(1001)]).operations
    )
    assert 1000 == len(decide_find_acls(image, [AclFilter(name="t1")] * 1000).outcomes)
    with pytest.raises(InvalidRequestError, match="too many"):
        decide_find_acls(image, [AclFilter()] * 1000)


def test_credentials_are_replaced_and_deleted() -> None:
    first = decide_scram_credentials(ClusterImage(), {USER: CREDENTIAL, (ScramMechanism.SHA_512, "u"): None})
    assert (("u", True), ("u", False)) == first.outcomes
    image = committed(ClusterImage(), *first.operations)
    assert {USER: CREDENTIAL} == dict(image.scram_credentials)
    again = decide_scram_credentials(image, {USER: CREDENTIAL})
    assert [1] == [each.expected for each in again.operations]
    assert (Delete(scram_key(*USER), 1),) == decide_scram_credentials(image, {USER: None}).operations


def test_quotas_that_are_not_named_stay() -> None:
    entity = QuotaEntity(user="u")
    image = committed(ClusterImage(), *decide_client_quotas(ClusterImage(), {entity: {"a": 1.0, "b": 2.0}}).operations)
    image = committed(image, *decide_client_quotas(image, {entity: {"a": None, "c": 3.0}}).operations)
    assert {"b": 2.0, "c": 3.0} == dict(image.client_quotas[entity])
    assert () == decide_client_quotas(image, {entity: {"b": 2.0, "x": None}}).operations
    assert (Delete(quota_key(entity), 2),) == decide_client_quotas(image, {entity: {"b": None, "c": None}}).operations
    assert () == decide_client_quotas(image, {QuotaEntity(ip=""): {"a": None}}).operations


def test_tokens_are_changed_and_removed() -> None:
    image = with_tokens(token("t", 500))
    changed = decide_change_token(image, "t", lambda _: token("t", 600))
    assert 600 == committed(image, *changed.operations).delegation_tokens["t"].expiry_ms
    assert (Delete(token_key("t"), 1),) == decide_change_token(image, "t", lambda _: None).operations
    with pytest.raises(TokenNotFoundError):
        decide_change_token(image, "absent", lambda each: each)


def test_expired_tokens_are_removed() -> None:
    image = with_tokens(token("old", 500), token("older", 400), token("young", 501))
    assert {"old", "older"} == set(decide_remove_expired_tokens(image, 500, 10).outcomes)
    assert 1 == len(decide_remove_expired_tokens(image, 500, 1).operations)


def test_a_user_cannot_fill_the_memory_of_brokers_with_tokens() -> None:
    """Every user may create tokens, without any ACL; the tokens of others do not count."""
    image = with_tokens(*(token(str(number), 900) for number in range(TOKENS_MAX)))
    with pytest.raises(TokenRequestNotAllowedError, match="at most 1000"):
        decide_create_token(image, token("one more", 900))
    of_bob = replace(token("other", 900), requester=Principal("User", "bob"))
    assert (of_bob,) == decide_create_token(image, of_bob).outcomes
