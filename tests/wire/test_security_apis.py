"""ACLs, SCRAM users, client quotas and delegation tokens in every version, on a broker without an authorizer."""

from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from tests.wire.exchange import RawConnection, every_version
from tests.wire.world import unused_name

ANY = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}


@every_version(ApiKey.CREATE_ACLS)
def test_create_acls(connection: RawConnection, version: int) -> None:
    acl = {
        "resource_type": 2,
        "resource_name": "t",
        "principal": "User:u",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    answer = connection.ask(ApiKey.CREATE_ACLS, version, {"creations": [acl, acl]})
    assert [ErrorCode.security_disabled] * 2 == [each.error_code for each in answer.results]


@every_version(ApiKey.DESCRIBE_ACLS)
def test_describe_acls(connection: RawConnection, version: int) -> None:
    answer = connection.ask(ApiKey.DESCRIBE_ACLS, version, ANY)
    assert (ErrorCode.security_disabled, ()) == (answer.error_code, answer.resources)


@every_version(ApiKey.DELETE_ACLS)
def test_delete_acls(connection: RawConnection, version: int) -> None:
    answer = connection.ask(ApiKey.DELETE_ACLS, version, {"filters": [ANY]})
    assert [ErrorCode.security_disabled] == [each.error_code for each in answer.filter_results]


def upsertion(name: str) -> dict[str, Any]:
    return {"name": name, "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": bytes(32)}


@every_version(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
def test_alter_user_scram_credentials(connection: RawConnection, version: int) -> None:
    name = unused_name()
    for change in ({"upsertions": [upsertion(name)]}, {"deletions": [{"name": name, "mechanism": 1}]}):
        answer = connection.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, version, change)
        assert [(name, ErrorCode.none)] == [(each.user, each.error_code) for each in answer.results]


@every_version(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
def test_describe_user_scram_credentials(connection: RawConnection, version: int) -> None:
    name = unused_name()
    connection.ask_newest(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, {"upsertions": [upsertion(name)]})
    asked = {"users": [{"name": name}, {"name": "nobody"}]}
    answer = connection.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, version, asked)
    assert ErrorCode.none is answer.error_code
    assert {name: (ErrorCode.none, [(1, 4096)]), "nobody": (ErrorCode.resource_not_found, [])} == {
        each.user: (each.error_code, [(info.mechanism, info.iterations) for info in each.credential_infos])
        for each in answer.results
    }


def quota(name: str, value: float) -> dict[str, Any]:
    return {
        "entries": [
            {
                "entity": [{"entity_type": "user", "entity_name": name}],
                "ops": [{"key": "producer_byte_rate", "value": value, "remove": False}],
            }
        ]
    }


@every_version(ApiKey.ALTER_CLIENT_QUOTAS)
def test_alter_client_quotas(connection: RawConnection, version: int) -> None:
    name = unused_name()
    for value, error in ((1e9, ErrorCode.none), (-1.0, ErrorCode.invalid_request)):
        answer = connection.ask(ApiKey.ALTER_CLIENT_QUOTAS, version, quota(name, value))
        (entry,) = answer.entries
        assert (error, "user", name) == (entry.error_code, entry.entity[0].entity_type, entry.entity[0].entity_name)


@every_version(ApiKey.DESCRIBE_CLIENT_QUOTAS)
def test_describe_client_quotas(connection: RawConnection, version: int) -> None:
    name = unused_name()
    connection.ask_newest(ApiKey.ALTER_CLIENT_QUOTAS, quota(name, 1e9))
    asked = {"components": [{"entity_type": "user", "match_type": 0, "match": name}], "strict": True}
    answer = connection.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, asked)
    (entry,) = answer.entries
    assert [("producer_byte_rate", 1e9)] == [(each.key, each.value) for each in entry.values]


REFUSED = ErrorCode.delegation_token_request_not_allowed


@every_version(ApiKey.CREATE_DELEGATION_TOKEN)
def test_create_delegation_token(connection: RawConnection, version: int) -> None:
    answer = connection.ask(ApiKey.CREATE_DELEGATION_TOKEN, version, {"max_lifetime": timedelta(milliseconds=-1)})
    assert (REFUSED, "User", "ANONYMOUS", "", b"") == (
        answer.error_code,
        answer.principal_type,
        answer.principal_name,
        answer.token_id,
        answer.hmac,
    )


@every_version(ApiKey.RENEW_DELEGATION_TOKEN)
def test_renew_delegation_token(connection: RawConnection, version: int) -> None:
    assert REFUSED is connection.ask(ApiKey.RENEW_DELEGATION_TOKEN, version, {"hmac": b"x"}).error_code


@every_version(ApiKey.EXPIRE_DELEGATION_TOKEN)
def test_expire_delegation_token(connection: RawConnection, version: int) -> None:
    assert REFUSED is connection.ask(ApiKey.EXPIRE_DELEGATION_TOKEN, version, {"hmac": b"x"}).error_code


@every_version(ApiKey.DESCRIBE_DELEGATION_TOKEN)
def test_describe_delegation_token(connection: RawConnection, version: int) -> None:
    answer = connection.ask(ApiKey.DESCRIBE_DELEGATION_TOKEN, version, {"owners": None})
    assert (REFUSED, ()) == (answer.error_code, answer.tokens)


@every_version(ApiKey.SASL_HANDSHAKE)
def test_sasl_handshake(connection: RawConnection, version: int) -> None:
    answer = connection.ask(ApiKey.SASL_HANDSHAKE, version, {"mechanism": "PLAIN"})
    assert (ErrorCode.illegal_sasl_state, ()) == (answer.error_code, answer.mechanisms)


@every_version(ApiKey.SASL_AUTHENTICATE)
def test_sasl_authenticate(connection: RawConnection, version: int) -> None:
    answer = connection.ask(ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": b"\0alice\0secret"})
    assert (ErrorCode.illegal_sasl_state, b"") == (answer.error_code, answer.auth_bytes)
