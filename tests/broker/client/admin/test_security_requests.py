"""The admin clients on ACLs, SCRAM users, client quotas and delegation tokens, against a real broker."""

from collections.abc import Iterator

import pytest

from ottla import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ACLResourceType,
    Admin,
    AsyncAdmin,
    QuotaEntity,
    ResourcePattern,
    ResourcePatternFilter,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from ottla.client.admin.values import PartlyFailedError
from ottla.client.arguments import ArgumentError
from ottla.client.errors import AnswerError
from ottla.metadata.configs.authorization_configs import STANDARD_AUTHORIZER
from ottla.model.error_codes import ErrorCode
from ottla.security.scram_credential import is_password
from ottla.testing import InProcessBroker

pytestmark = pytest.mark.ottla_broker(
    {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": "secret",
    }
)


@pytest.fixture
def admin(broker: InProcessBroker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap) as made:
        yield made


def an_acl(principal: str = "User:a", name: str = "t", host: str = "*", prefixed: bool = False) -> ACL:
    kind = ACLResourcePatternType.PREFIXED if prefixed else ACLResourcePatternType.LITERAL
    pattern = ResourcePattern(ACLResourceType.TOPIC, name, kind)
    return ACL(principal, host, ACLOperation.READ, ACLPermissionType.ALLOW, pattern)


def test_acls_are_created_described_and_deleted(admin: Admin) -> None:
    literal, prefixed = an_acl(), an_acl("User:b", "t", prefixed=True)
    assert [literal, prefixed] == list(admin.create_acls([literal, prefixed, literal]))
    assert [literal, prefixed] == admin.describe_acls()
    matching = ResourcePatternFilter(ACLResourceType.TOPIC, "t-long", ACLResourcePatternType.MATCH)
    assert [prefixed] == admin.describe_acls(ACLFilter(resource_pattern=matching))
    everything = ACLFilter()
    assert {everything: [literal, prefixed]} == dict(admin.delete_acls([everything]))
    assert [] == admin.describe_acls()


def test_acls_that_are_refused_do_not_stop_the_others(admin: Admin) -> None:
    good, bad = an_acl(), an_acl(host="10.0.0.0/99")
    outcomes = admin.create_acls([good, bad], raise_errors=False)
    assert ([good], [bad]) == (list(outcomes), list(outcomes.errors))
    with pytest.raises(PartlyFailedError):
        admin.create_acls([good, bad])
    with pytest.raises(AnswerError, match="CIDR"):
        admin.create_acls([bad])
    admin.delete_acls([ACLFilter()])


@pytest.mark.parametrize(
    "made",
    [
        lambda: ResourcePattern(ACLResourceType.ANY, "t"),
        lambda: ResourcePattern(ACLResourceType.TOPIC, "t", ACLResourcePatternType.MATCH),
        lambda: ACL("User:a", "*", ACLOperation.ANY, ACLPermissionType.ALLOW, an_acl().resource_pattern),
        lambda: ACL("User:a", "*", ACLOperation.READ, ACLPermissionType.ANY, an_acl().resource_pattern),
        lambda: ACLFilter(principal=7),  # type: ignore[arg-type]
        lambda: UserScramCredentialUpsertion("u", "PLAIN", "p"),
        lambda: UserScramCredentialUpsertion("u", "SCRAM-SHA-256", ""),
    ],
)
def test_values_that_make_no_sense_are_refused(made: object) -> None:
    assert callable(made)
    with pytest.raises(ArgumentError):
        made()


def test_users_are_created_described_and_deleted(admin: Admin, broker: InProcessBroker) -> None:
    wanted = UserScramCredentialUpsertion("alice", "scram_sha_256", "pencil", iterations=4096)
    assert "pencil" not in repr(wanted)
    assert ["alice"] == list(admin.alter_user_scram_credentials([wanted]))
    (info,) = admin.describe_user_scram_credentials()["alice"]
    assert (ScramMechanism.SHA_256, 4096) == (info.mechanism, info.iterations)
    stored = broker.broker.image.scram_credentials[ScramMechanism.SHA_256, "alice"]
    assert is_password(ScramMechanism.SHA_256, stored, "pencil")
    missing = admin.describe_user_scram_credentials(["bob"], raise_errors=False)
    assert [ErrorCode.RESOURCE_NOT_FOUND] == [getattr(each, "error_code", None) for each in missing.errors.values()]
    admin.alter_user_scram_credentials([UserScramCredentialDeletion("alice", ScramMechanism.SHA_256)])
    assert {} == dict(admin.describe_user_scram_credentials())
    with pytest.raises(AnswerError):
        admin.alter_user_scram_credentials([UserScramCredentialDeletion("alice", ScramMechanism.SHA_256)])


def test_quotas_are_set_described_and_removed(admin: Admin) -> None:
    alice, default = QuotaEntity(user="alice"), QuotaEntity(user="alice", client_id="")
    admin.alter_client_quotas({alice: {"producer_byte_rate": 1000}, default: {"request_percentage": 50.5}})
    assert {alice: {"producer_byte_rate": 1000.0}, default: {"request_percentage": 50.5}} == (
        admin.describe_client_quotas()
    )
    assert [alice] == list(admin.describe_client_quotas({"user": "alice"}, strict=True))
    assert [default] == list(admin.describe_client_quotas({"client_id": None}))
    admin.alter_client_quotas({alice: {"producer_byte_rate": 5}}, validate_only=True)
    assert 1000 == admin.describe_client_quotas()[alice]["producer_byte_rate"]
    refused = admin.alter_client_quotas(
        {alice: {"speed": 1}, default: {"request_percentage": None}}, raise_errors=False
    )
    assert ([default], [alice]) == (list(refused), list(refused.errors))
    admin.alter_client_quotas({alice: {"producer_byte_rate": None}})
    assert {} == admin.describe_client_quotas()
    with pytest.raises(ArgumentError):
        admin.describe_client_quotas({"host": "h"})


def test_tokens_need_a_client_that_has_logged_in(admin: Admin) -> None:
    with pytest.raises(AnswerError) as refused:
        admin.create_delegation_token(["User:bob"])
    assert ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED == refused.value.error_code
    with pytest.raises(ArgumentError):
        admin.create_delegation_token(["bob"])


async def test_the_async_client_has_the_same_methods(broker: InProcessBroker) -> None:
    async with AsyncAdmin(bootstrap_servers=broker.bootstrap) as admin:
        await admin.create_acls([an_acl()])
        assert [[an_acl()]] == [*(await admin.delete_acls([ACLFilter(principal="User:a")])).values()]
