"""SCRAM users, client quotas and delegation tokens: requests of clients that log in to a real broker."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from hashlib import sha512
from hmac import digest
from pathlib import Path
from typing import Any, Final

import pytest

from ottla.broker.broker import Broker
from ottla.env.real_network import RealNetwork
from ottla.env.world import World, real_world
from ottla.protocol.apis import ApiKey
from ottla.security.authorizer import Authorizer
from ottla.security.connection_context import ConnectionContext
from ottla.security.delegation_token import token_password
from ottla.security.principals import Principal
from ottla.security.quota_entity import QuotaEntity
from ottla.security.resources import Operation, ResourceType
from ottla.security.scram_credential import ScramMechanism, is_password, salted_password
from ottla.security.security_protocol import SecurityProtocol
from ottla.transport.addresses import Address
from ottla.transport.client_connection import Connection
from ottla.transport.client_security import ClientSecurity, sasl_login
from tests.broker.moved_clock import MovedClock
from tests.broker.running_broker import broker_on, dotted, request_of
from tests.broker.secured import Secured
from tests.waiting import PATIENCE_SECONDS, until

ALICE: Final = Principal("User", "alice")
BOB: Final = Principal("User", "bob")
EVE: Final = Principal("User", "eve")
DAY_MS: Final = 86_400_000
SECRET: Final = "s3cret"


PASSWORD: Final = "pw"
TIMEOUT_MS: Final = PATIENCE_SECONDS * 1000


class Permissions:
    """An authorizer that allows everything, or only what is in `allowed`."""

    allows_all = False
    version = 0

    def __init__(self) -> None:
        self.allowed: set[tuple[Operation, ResourceType, str]] | None = None

    def allows(self, client: ConnectionContext, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return self.allowed is None or (operation, resource_type, name) in self.allowed

    def allows_any(self, client: ConnectionContext, operation: Operation, resource_type: ResourceType) -> bool:
        return self.allowed is None


@asynccontextmanager
async def running(
    folder: Path,
    *,
    authorizer: Authorizer | None = None,
    world: World | None = None,
    secured: Secured | None = None,
    **settings: str,
) -> AsyncIterator[Broker]:
    """A broker whose clients log in as alice, bob or eve, or not at all; with `secured` also over TLS."""
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in ("alice", "bob", "eve"))
    login = f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
    configs = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
    }
    if secured is not None:
        configs |= {
            "listeners": f"{configs['listeners']},SSL://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": login,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(secured.keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(secured.ca),
            "listener.name.ssl.ssl.client.auth": "requested",
            "ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/,DEFAULT",
        }
    async with broker_on(folder, {**configs, **dotted(settings)}, authorizer=authorizer, world=world) as broker:
        yield broker


def with_password(principal: Principal, tls: ssl.SSLContext | None = None) -> ClientSecurity:
    protocol = SecurityProtocol.SASL_PLAINTEXT if tls is None else SecurityProtocol.SASL_SSL
    login = sasl_login("PLAIN", username=principal.name, password=PASSWORD)
    return ClientSecurity(security_protocol=protocol, ssl_context=tls, sasl=login)


async def ask(
    broker: Broker,
    api_key: ApiKey,
    principal: Principal = ALICE,
    *,
    security: ClientSecurity | None = None,
    **values: Any,
) -> Any:
    """The response to a client on a connection of its own, which logs in with a password by default."""
    security = security or with_password(principal)
    (port,) = (each.port for each in broker.endpoints if each.name == security.security_protocol)
    address = Address("127.0.0.1", port)
    connection = await Connection.open(
        RealNetwork(), address, client_id="test", timeout_ms=TIMEOUT_MS, security=security
    )
    try:
        return await connection.request(api_key, request_of(api_key, values), timeout_ms=TIMEOUT_MS)
    finally:
        connection.close()


# SCRAM


def upsertion(name: str, mechanism: int = 1, iterations: int = 4096, password: str = "pw") -> dict[str, Any]:
    kind = {1: ScramMechanism.SHA_256, 2: ScramMechanism.SHA_512}.get(mechanism, ScramMechanism.SHA_256)
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": b"salt",
        "salted_password": salted_password(kind, password, b"salt", 4096),
    }


def by_user(answer: Any) -> dict[str, int]:
    return {each.user: each.error_code.value for each in answer.results}


async def test_scram_users_are_made_described_and_deleted(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        alter = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
        users = [upsertion("u"), upsertion("ü/ö x", 2, 8192, "other")]
        assert {"u": 0, "ü/ö x": 0} == by_user(await ask(broker, alter, upsertions=users))
        stored = broker.image.scram_credentials
        assert is_password(ScramMechanism.SHA_256, stored[ScramMechanism.SHA_256, "u"], "pw")
        assert not is_password(ScramMechanism.SHA_256, stored[ScramMechanism.SHA_256, "u"], "other")
        described = await ask(broker, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, users=None)
        assert {"u": [(1, 4096)], "ü/ö x": [(2, 8192)]} == {
            each.user: [(info.mechanism, info.iterations) for info in each.credential_infos]
            for each in described.results
        }
        names = [{"name": name} for name in ("u", "nobody", "twice", "twice")]
        described = await ask(broker, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, users=names)
        assert {"u": 0, "nobody": 91, "twice": 92} == by_user(described)
        deletions = [{"name": "u", "mechanism": 1}, {"name": "ü/ö x", "mechanism": 1}]
        assert {"u": 0, "ü/ö x": 91} == by_user(await ask(broker, alter, deletions=deletions))
        assert {(ScramMechanism.SHA_512, "ü/ö x")} == set(broker.image.scram_credentials)


async def test_scram_users_that_are_refused_leave_the_others_alone(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        answer = await ask(
            broker,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            deletions=[{"name": "both", "mechanism": 1}, {"name": "gone", "mechanism": 9}],
            upsertions=[
                upsertion("fine"),
                upsertion("few", iterations=4095),
                upsertion("many", iterations=16385),
                upsertion("unknown", mechanism=3),
                upsertion(""),
                upsertion("both"),
                upsertion("twice"),
                upsertion("twice", 2),
                upsertion("salty") | {"salt": b""},
            ],
        )
        expected = {"both": 92, "gone": 33, "fine": 0, "few": 93, "many": 93, "unknown": 33, "": 93, "twice": 92}
        assert expected | {"salty": 93} == by_user(answer)
        assert {(ScramMechanism.SHA_256, "fine")} == set(broker.image.scram_credentials)


# Client quotas


def entry(entity: dict[str, str | None], **quotas: float | None) -> dict[str, Any]:
    return {
        "entity": [{"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in entity.items()],
        "ops": [
            {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
            for key, value in quotas.items()
        ],
    }


def component(kind: str, match_type: int, match: str | None = None) -> dict[str, Any]:
    return {"entity_type": kind, "match_type": match_type, "match": match}


async def test_client_quotas_are_set_described_and_removed(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:

        async def alter(*entries: dict[str, Any], validate_only: bool = False) -> list[int]:
            answer = await ask(broker, ApiKey.ALTER_CLIENT_QUOTAS, entries=list(entries), validate_only=validate_only)
            return [each.error_code.value for each in answer.entries]

        async def described(*components: dict[str, Any], strict: bool = False) -> set[tuple[Any, ...]]:
            answer = await ask(broker, ApiKey.DESCRIBE_CLIENT_QUOTAS, components=list(components), strict=strict)
            assert 0 == answer.error_code.value
            return {tuple((part.entity_type, part.entity_name) for part in each.entity) for each in answer.entries}

        assert [0] == await alter(entry({"user": "x"}, producer_byte_rate=1.0), validate_only=True)
        assert {} == dict(broker.image.client_quotas)
        codes = await alter(
            entry({"user": "u"}, producer_byte_rate=1000.0, consumer_byte_rate=2000.0),
            entry({"user": None}, request_percentage=12.5),
            entry({"client_id": "c/ü", "user": "u"}, controller_mutation_rate=0.5),
            entry({"ip": "10.0.0.1"}, connection_creation_rate=3.0),
        )
        assert [0, 0, 0, 0] == codes
        assert {
            QuotaEntity(user="u"): {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0},
            QuotaEntity(user=""): {"request_percentage": 12.5},
            QuotaEntity(user="u", client_id="c/ü"): {"controller_mutation_rate": 0.5},
            QuotaEntity(ip="10.0.0.1"): {"connection_creation_rate": 3.0},
        } == {entity: dict(quotas) for entity, quotas in broker.image.client_quotas.items()}
        user, default, both, ip = (
            (("user", "u"),),
            (("user", None),),
            (("user", "u"), ("client-id", "c/ü")),
            (("ip", "10.0.0.1"),),
        )
        assert {user, default, both, ip} == await described()
        assert {user, both} == await described(component("user", 0, "u"))
        assert {user} == await described(component("user", 0, "u"), strict=True)
        assert {default} == await described(component("user", 1))
        assert {user, default, both} == await described(component("user", 2))
        assert {both} == await described(component("user", 2), component("client-id", 2), strict=True)
        assert {ip} == await described(component("ip", 2))
        assert set() == await described(strict=True)
        assert [0] == await alter(entry({"user": "u"}, producer_byte_rate=None))
        assert {"consumer_byte_rate": 2000.0} == dict(broker.image.client_quotas[QuotaEntity(user="u")])
        assert [0, 0] == await alter(
            entry({"user": "u"}, consumer_byte_rate=None), entry({"user": "nobody"}, request_percentage=None)
        )
        assert QuotaEntity(user="u") not in broker.image.client_quotas


async def test_wrong_quotas_are_refused_alone(tmp_path: Path) -> None:
    wrong = [
        entry({}),
        entry({"user": ""}, producer_byte_rate=1.0),
        entry({"planet": "x"}, producer_byte_rate=1.0),
        entry({"user": "u", "ip": "10.0.0.1"}, producer_byte_rate=1.0),
        entry({"ip": "10.0.0.1"}, producer_byte_rate=1.0),
        entry({"ip": "somewhere"}, connection_creation_rate=1.0),
        entry({"ip": None}, connection_creation_rate=1.5),
        entry({"user": "u"}, connection_creation_rate=1.0),
        entry({"user": "u"}, planet_rate=1.0),
        entry({"user": "u"}, producer_byte_rate=0.0),
        entry({"user": "u"}, producer_byte_rate=-1.0),
        entry({"user": "u"}, producer_byte_rate=1.5),
        entry({"user": "u"}, request_percentage=float("nan")),
        entry({"user": "u"}, request_percentage=float("inf")),
    ]
    async with running(tmp_path) as broker:
        codes = {}
        for number, each in enumerate(wrong):
            entries = [each, entry({"user": f"fine-{number}"}, producer_byte_rate=1.0)]
            answer = await ask(broker, ApiKey.ALTER_CLIENT_QUOTAS, entries=entries)
            codes[str(each)] = [found.error_code.value for found in answer.entries]
        assert {str(each): [42, 0] for each in wrong} == codes
        assert {QuotaEntity(user=f"fine-{number}") for number in range(len(wrong))} == set(broker.image.client_quotas)


async def test_wrong_quota_filters_are_refused(tmp_path: Path) -> None:
    expected = [
        ([component("", 2)], 42),
        ([component("planet", 2)], 35),
        ([component("user", 2), component("user", 2)], 42),
        ([component("user", 3)], 42),
        ([component("user", 0)], 42),
        ([component("user", 2), component("ip", 2)], 42),
    ]
    async with running(tmp_path) as broker:
        found = []
        for components, _ in expected:
            answer = await ask(broker, ApiKey.DESCRIBE_CLIENT_QUOTAS, components=components)
            assert answer.entries is None
            found.append((components, answer.error_code.value))
        assert expected == found


# Delegation tokens


def ms(count: int) -> timedelta:
    return timedelta(milliseconds=count)


def renewer(principal: Principal) -> dict[str, str]:
    return {"principal_type": principal.type, "principal_name": principal.name}


async def test_the_life_of_a_delegation_token(tmp_path: Path) -> None:
    clock = MovedClock()
    world = replace(real_world(), clock=clock)
    async with running(tmp_path, world=world, delegation_token_secret_key=SECRET) as broker:
        made = await ask(broker, ApiKey.CREATE_DELEGATION_TOKEN, renewers=[renewer(BOB)], max_lifetime=ms(-1))
        assert (0, "alice", "alice") == (
            made.error_code.value,
            made.principal_name,
            made.token_requester_principal_name,
        )
        assert digest(SECRET.encode(), made.token_id.encode(), sha512) == made.hmac
        assert timedelta(days=1) == made.expiry_timestamp - made.issue_timestamp
        assert timedelta(days=7) == made.max_timestamp - made.issue_timestamp
        token = broker.image.delegation_tokens[made.token_id]
        assert (ALICE, (BOB,)) == (token.owner, token.renewers)

        renew, expire = ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN
        assert 62 == (await ask(broker, renew, BOB, hmac=b"x", renew_period=ms(1))).error_code.value
        assert 63 == (await ask(broker, renew, EVE, hmac=made.hmac, renew_period=ms(1))).error_code.value
        assert 63 == (await ask(broker, expire, EVE, hmac=made.hmac, expiry_time_period=ms(-1))).error_code.value
        renewed = await ask(broker, renew, BOB, hmac=made.hmac, renew_period=ms(100 * DAY_MS))
        assert 0 == renewed.error_code.value
        left = renewed.expiry_timestamp - made.issue_timestamp
        assert timedelta(days=1) <= left < timedelta(days=1, hours=1)
        soon = await ask(broker, expire, ALICE, hmac=made.hmac, expiry_time_period=ms(3_600_000))
        assert soon.expiry_timestamp < renewed.expiry_timestamp

        described = await ask(broker, ApiKey.DESCRIBE_DELEGATION_TOKEN, owners=None)
        assert [(made.token_id, made.hmac)] == [(each.token_id, each.hmac) for each in described.tokens]
        now = await ask(broker, expire, ALICE, hmac=made.hmac, expiry_time_period=ms(0))
        assert 0 == now.error_code.value
        assert 66 == (await ask(broker, renew, ALICE, hmac=made.hmac, renew_period=ms(-1))).error_code.value
        assert 66 == (await ask(broker, expire, ALICE, hmac=made.hmac, expiry_time_period=ms(1))).error_code.value
        # Expired tokens are removed once an hour.
        clock.move(timedelta(hours=1, seconds=1).total_seconds())
        await until(lambda: not broker.image.delegation_tokens)

        made = await ask(broker, ApiKey.CREATE_DELEGATION_TOKEN, max_lifetime=ms(60_000))
        assert timedelta(minutes=1) == made.max_timestamp - made.issue_timestamp
        assert made.expiry_timestamp == made.max_timestamp
        gone = await ask(broker, expire, ALICE, hmac=made.hmac, expiry_time_period=ms(-1))
        assert 0 == gone.error_code.value
        assert {} == dict(broker.image.delegation_tokens)


async def test_tokens_of_others_need_permission(tmp_path: Path) -> None:
    create, describe = ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN
    permissions = Permissions()
    async with running(tmp_path, authorizer=permissions, delegation_token_secret_key=SECRET) as broker:
        for_bob: dict[str, Any] = {
            "owner_principal_type": "User",
            "owner_principal_name": "bob",
            "max_lifetime": ms(-1),
        }
        permissions.allowed = set()
        assert 65 == (await ask(broker, create, **for_bob)).error_code.value
        permissions.allowed = {(Operation.CREATE_TOKENS, ResourceType.USER, "User:bob")}
        made = await ask(broker, create, **for_bob)
        assert (0, "bob", "alice") == (made.error_code.value, made.principal_name, made.token_requester_principal_name)
        permissions.allowed = None
        wrong = await ask(broker, create, renewers=[renewer(Principal("Group", "g"))], max_lifetime=ms(-1))
        assert 67 == wrong.error_code.value

        async def seen(
            principal: Principal, *allowed: tuple[Operation, ResourceType, str], owners: Any = None
        ) -> list[str]:
            permissions.allowed = set(allowed)
            answer = await ask(broker, describe, principal, owners=owners)
            return [each.token_id for each in answer.tokens]

        all_of_it = [made.token_id]
        assert all_of_it == await seen(BOB)
        assert all_of_it == await seen(ALICE)
        assert [] == await seen(EVE)
        assert [] == await seen(BOB, owners=[])
        assert [] == await seen(BOB, owners=[renewer(EVE)])
        assert all_of_it == await seen(BOB, owners=[renewer(EVE), renewer(BOB)])
        assert all_of_it == await seen(BOB, owners=[renewer(ALICE)])
        assert all_of_it == await seen(EVE, (Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, made.token_id))
        assert all_of_it == await seen(EVE, (Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:bob"))


@pytest.mark.parametrize(
    ("client", "code"),
    [
        ("plain text", 64),
        ("TLS", 64),
        ("TLS with a certificate", 0),
        ("password", 0),
        ("TLS with a password", 0),
        ("token", 64),
    ],
)
async def test_only_authenticated_clients_ask_about_tokens(tmp_path: Path, client: str, code: int) -> None:
    secured = Secured(tmp_path)
    async with running(tmp_path, secured=secured, delegation_token_secret_key=SECRET) as broker:
        made = await ask(broker, ApiKey.CREATE_DELEGATION_TOKEN, max_lifetime=ms(-1))
        tls, certified = (ssl.create_default_context(cafile=secured.ca) for _ in range(2))
        certified.load_cert_chain(secured.issue_client("alice"))
        token = {"username": made.token_id, "password": token_password(SECRET, made.token_id)}
        security = {
            "plain text": ClientSecurity(),
            "TLS": ClientSecurity(security_protocol=SecurityProtocol.SSL, ssl_context=tls),
            "TLS with a certificate": ClientSecurity(security_protocol=SecurityProtocol.SSL, ssl_context=certified),
            "password": with_password(ALICE),
            "TLS with a password": with_password(ALICE, tls),
            "token": ClientSecurity(
                security_protocol=SecurityProtocol.SASL_PLAINTEXT,
                sasl=sasl_login("SCRAM-SHA-256", is_token=True, **token),
            ),
        }[client]
        renewal: dict[str, Any] = {"hmac": made.hmac, "renew_period": ms(-1)}
        expiry: dict[str, Any] = {"hmac": made.hmac, "expiry_time_period": ms(-1)}
        answers = [
            await ask(broker, ApiKey.CREATE_DELEGATION_TOKEN, security=security, max_lifetime=ms(-1)),
            await ask(broker, ApiKey.RENEW_DELEGATION_TOKEN, security=security, **renewal),
            await ask(broker, ApiKey.DESCRIBE_DELEGATION_TOKEN, security=security, owners=None),
            await ask(broker, ApiKey.EXPIRE_DELEGATION_TOKEN, security=security, **expiry),
        ]
        assert [code] * 4 == [each.error_code.value for each in answers]


async def test_without_a_secret_key_there_are_no_tokens(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        answers = [
            await ask(broker, ApiKey.CREATE_DELEGATION_TOKEN, max_lifetime=ms(-1)),
            await ask(broker, ApiKey.RENEW_DELEGATION_TOKEN, hmac=b"x", renew_period=ms(-1)),
            await ask(broker, ApiKey.EXPIRE_DELEGATION_TOKEN, hmac=b"x", expiry_time_period=ms(-1)),
            await ask(broker, ApiKey.DESCRIBE_DELEGATION_TOKEN, owners=None),
        ]
        assert [61] * 4 == [each.error_code.value for each in answers]
