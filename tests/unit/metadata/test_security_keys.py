"""Keys of ACLs, users, quotas and tokens: any name round-trips, no two things share a key, damage is named."""

import re
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.changes import apply, image_of
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import (
    AclRecord,
    ClientQuotaRecord,
    encode,
    scram_record,
    token_record,
)
from ottla.metadata.security_keys import (
    acl_key,
    acl_of,
    quota_entity_of,
    quota_key,
    scram_key,
    scram_user_of,
    token_id_of,
    token_key,
)
from ottla.metadata.store import Change, Entry, check_key
from ottla.model.errors import CorruptError
from ottla.security.acls import AclBinding, PatternType, Permission
from ottla.security.delegation_token import TokenInfo
from ottla.security.principals import Principal
from ottla.security.quota_entity import QuotaEntity
from ottla.security.resources import Operation, ResourceType
from ottla.security.scram_credential import ScramCredential, ScramMechanism

NAMES = st.text(min_size=1, max_size=20) | st.sampled_from(["a/b", "..", ".", "<default>", "default", "%2F", "ü", " "])
BINDINGS = st.builds(
    AclBinding,
    resource_type=st.sampled_from(ResourceType),
    pattern_type=st.sampled_from(PatternType),
    name=NAMES,
    principal=NAMES.map(lambda name: f"User:{name}"),
    host=NAMES,
    operation=st.sampled_from(Operation),
    permission=st.sampled_from(Permission),
)
MAYBE = st.none() | st.just("") | NAMES
ENTITIES = st.builds(QuotaEntity, user=MAYBE, client_id=MAYBE, ip=MAYBE).filter(lambda each: each != QuotaEntity())
USERS = st.tuples(st.sampled_from(ScramMechanism), NAMES)
CREDENTIAL = ScramCredential(b"\0salt\xff", b"stored", b"server", 4096)


def token(token_id: str) -> TokenInfo:
    return TokenInfo(
        id=token_id,
        owner=Principal("User", "a:b"),
        requester=Principal("User", "ü"),
        renewers=(Principal("User", "c/d"), Principal("User", "")),
        issued_ms=1,
        expiry_ms=2,
        max_ms=3,
    )


@given(binding=BINDINGS, entity=ENTITIES, user=USERS, token_id=NAMES)
def test_keys_round_trip(
    binding: AclBinding, entity: QuotaEntity, user: tuple[ScramMechanism, str], token_id: str
) -> None:
    assert binding == acl_of(acl_key(binding))
    assert entity == quota_entity_of(quota_key(entity))
    assert user == scram_user_of(scram_key(*user))
    assert token_id == token_id_of(token_key(token_id))
    for key in (acl_key(binding), quota_key(entity), scram_key(*user), token_key(token_id)):
        check_key(key)


@given(
    bindings=st.sets(BINDINGS, max_size=5),
    entities=st.sets(ENTITIES, max_size=5),
    users=st.sets(USERS, max_size=5),
    token_ids=st.sets(NAMES, max_size=3),
)
def test_images_have_what_was_written_until_it_is_deleted(
    bindings: set[AclBinding],
    entities: set[QuotaEntity],
    users: set[tuple[ScramMechanism, str]],
    token_ids: set[str],
) -> None:
    values = {acl_key(each): encode(AclRecord()) for each in bindings}
    values |= {quota_key(each): encode(ClientQuotaRecord(quotas={"producer_byte_rate": 1.0})) for each in entities}
    values |= {scram_key(*each): encode(scram_record(CREDENTIAL)) for each in users}
    values |= {token_key(each): encode(token_record(token(each))) for each in token_ids}
    assert len(values) == len(bindings) + len(entities) + len(users) + len(token_ids)
    image = image_of(1, [Entry(key, value, 1) for key, value in values.items()])
    assert bindings == image.acls
    assert {key: {"producer_byte_rate": 1.0} for key in entities} == dict(image.client_quotas)
    assert dict.fromkeys(users, CREDENTIAL) == dict(image.scram_credentials)
    assert {each: token(each) for each in token_ids} == dict(image.delegation_tokens)
    applied = apply(ClusterImage(), [Change(1, key, value) for key, value in values.items()])
    assert (image if values else ClusterImage()) == applied
    emptied = apply(applied, [Change(2, key, None) for key in values])
    assert (frozenset(), {}, {}, {}) == (
        emptied.acls,
        dict(emptied.client_quotas),
        dict(emptied.scram_credentials),
        dict(emptied.delegation_tokens),
    )


def test_unchanged_parts_are_shared() -> None:
    image = image_of(1, [Entry(scram_key(ScramMechanism.SHA_256, "u"), encode(scram_record(CREDENTIAL)), 1)])
    later = apply(image, [Change(2, "unknown/key", b"")])
    assert later.acls is image.acls
    assert later.scram_credentials is image.scram_credentials
    assert isinstance(later.client_quotas, MappingProxyType)


@pytest.mark.parametrize(
    "key",
    [
        "acls/TOPIC/LITERAL/t/User%3Aa/%2A/READ",
        "acls/TOPIC/LITERAL/t/User%3Aa/%2A/FLY/ALLOW",
        "acls/TOPIC/LITERAL/t/User:a/*/READ/ALLOW",
        "client-quotas/user",
        "client-quotas/planet/x",
        "client-quotas/client-id/x/user/y",
        "scram-credentials/SCRAM-MD5/u",
        "scram-credentials/SCRAM-SHA-256/a b",
        "delegation-tokens/a/b",
    ],
)
def test_damaged_keys_are_named(key: str) -> None:
    with pytest.raises(CorruptError, match=re.escape(key)):
        image_of(1, [Entry(key, b"{}", 1)])


def test_no_secret_is_shown() -> None:
    assert "stored" not in repr(scram_record(CREDENTIAL)) + repr(CREDENTIAL)
