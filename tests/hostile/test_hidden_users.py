"""A stranger begins SCRAM logins, many of them, and compares what the broker asks for: he does not learn who exists.

The first response has the salt and the iterations of the user, and of a name that does not exist something that looks
alike. It may not change with what the client sends beside the name, nor with what happens to other users.
"""

import base64
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from ottla.security.sasl.scram_decoys import decoy_credential
from ottla.security.scram_credential import ScramMechanism, make_credential, salted_password
from tests.hostile.secured import ADMIN, SecuredProcess, authenticate_frame, handshake_frame
from tests.wire.exchange import RawConnection, read_response

MECHANISM = ScramMechanism.SHA_256
SALT = b"a salt of twenty-six bytes"
KAFKA_SALTS = (b"1h3kq0vn5r8sz2c7xwm4yt6pbd", b"9ga0vq3mkc5x7tz1ry8ewn2dj", b"zz81kq0vn5r8sz2c7xwm4yt6p")
STRANGERS = [f"stranger-{number}" for number in range(60)]
FIRST = "!first"
"""The name that is sorted before all others."""
EXTENSIONS = ("", ",tokenauth=true", ",tokenauth=TRUE", ",tokenauth=false", ",other=true", ",tokenauth=true,other=1")


class Asked(NamedTuple):
    """What the broker asks a client for."""

    salt: str
    iterations: int


def asked_of(broker: SecuredProcess, name: str, extension: str = "", authzid: str = "") -> Asked:
    """The answer to the first message of a login."""
    with broker.open("SASL_PLAINTEXT") as stranger:
        connection = RawConnection.__new__(RawConnection)
        connection._socket = stranger
        connection.send(handshake_frame(MECHANISM))
        connection.receive()
        connection.send(authenticate_frame(f"n,{authzid},n={name},r=nonce{extension}".encode()))
        _, answer = read_response(ApiKey.SASL_AUTHENTICATE, 2, connection.receive())
    match = re.fullmatch("r=nonce[^,]+,s=([^,]+),i=([0-9]+)", answer.auth_bytes.decode())
    assert match is not None, answer
    return Asked(match[1], int(match[2]))


def set_user(
    broker: SecuredProcess, name: str, password: str = "secret", *, iterations: int = 4096, salt: bytes = SALT
) -> None:
    upsertion = {
        "name": name,
        "mechanism": MECHANISM.wire_type,
        "iterations": iterations,
        "salt": salt,
        "salted_password": salted_password(MECHANISM, password, salt, iterations),
    }
    alter(broker, {"upsertions": [upsertion]})


def delete_user(broker: SecuredProcess, name: str) -> None:
    alter(broker, {"deletions": [{"name": name, "mechanism": MECHANISM.wire_type}]})


def alter(broker: SecuredProcess, values: dict[str, Any]) -> None:
    with broker.connection(ADMIN, "SASL_PLAINTEXT") as connection:
        (result,) = connection.ask_newest(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, values).results
    assert ErrorCode.none is result.error_code


def create_token(broker: SecuredProcess) -> str:
    with broker.connection(ADMIN, "SASL_PLAINTEXT") as connection:
        values = {"renewers": [], "max_lifetime": timedelta(hours=1)}
        answer = connection.ask_newest(ApiKey.CREATE_DELEGATION_TOKEN, values)
    assert ErrorCode.none is answer.error_code
    token_id: str = answer.token_id
    return token_id


def restart(broker: SecuredProcess) -> None:
    broker.stop()
    broker.start()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredProcess]:
    with SecuredProcess(tmp_path_factory.mktemp("users")) as broker:
        set_user(broker, "bob", iterations=8192)
        set_user(broker, "carol")
        yield broker
        assert [] == broker.alarms()
        broker.stop()


def test_what_comes_with_the_name_changes_nothing(secured: SecuredProcess) -> None:
    """A login with a user's name as that of a delegation token, and the other way round."""
    names = ["bob", "carol", create_token(secured), *STRANGERS[:3]]
    for name in names:
        assert {asked_of(secured, name)} == {asked_of(secured, name, extension) for extension in EXTENSIONS}
        assert asked_of(secured, name) == asked_of(secured, name, authzid=f"a={name}")
    assert (8192, 4096) == (asked_of(secured, "bob").iterations, asked_of(secured, "carol").iterations)


def test_a_name_with_two_meanings_asks_for_one_salt(secured: SecuredProcess) -> None:
    """A user whose name is the id of a token."""
    token_id = create_token(secured)
    set_user(secured, token_id, iterations=8192)
    assert {asked_of(secured, token_id)} == {asked_of(secured, token_id, extension) for extension in EXTENSIONS}


def test_strangers_do_not_change_with_the_users(secured: SecuredProcess) -> None:
    """Whatever changes with the others would be no user."""
    before = {name: asked_of(secured, name) for name in STRANGERS}
    assert len(STRANGERS) == len({asked.salt for asked in before.values()})
    assert {4096, 8192} == {asked.iterations for asked in before.values()}
    changes: list[Callable[[], None]] = [
        lambda: set_user(secured, FIRST),
        lambda: set_user(secured, FIRST, "another"),
        lambda: set_user(secured, "bob", "another", iterations=8192),
        lambda: delete_user(secured, FIRST),
        lambda: restart(secured),
    ]
    for change in changes:
        change()
        assert before == {name: asked_of(secured, name) for name in STRANGERS}


def test_few_strangers_change_with_a_user_of_another_kind(secured: SecuredProcess) -> None:
    """With iterations that no user had, some strangers must have them as well; the salts stay."""
    before = {name: asked_of(secured, name) for name in STRANGERS}
    set_user(secured, "dave", iterations=16_384)
    after = {name: asked_of(secured, name) for name in STRANGERS}
    changed = {name for name in STRANGERS if before[name] != after[name]}
    assert {name: asked.salt for name, asked in before.items()} == {name: asked.salt for name, asked in after.items()}
    assert {16_384} == {after[name].iterations for name in changed}
    assert len(changed) < 2 * len(STRANGERS) / 3
    delete_user(secured, "dave")
    assert before == {name: asked_of(secured, name) for name in STRANGERS}


def test_strangers_have_salts_like_those_of_kafkas_tools(secured: SecuredProcess) -> None:
    """Those are text: the digits to base 36 of a number of 130 bits. A salt of other bytes would be no user's."""
    before = asked_of(secured, "bob")
    users = [f"made-by-kafka-{number}" for number in range(3)]
    for user, salt in zip(users, KAFKA_SALTS, strict=True):
        set_user(secured, user, salt=salt)
    salts = [base64.b64decode(asked_of(secured, name).salt) for name in STRANGERS]
    texts = [salt for salt in salts if re.fullmatch(b"[0-9a-z]{22,26}", salt)]
    assert len(STRANGERS) / 6 < len(texts) < len(STRANGERS)
    assert max(int(text, 36) for text in texts) < 2**130
    assert {25, 26} <= {len(text) for text in texts}
    for user in users:
        delete_user(secured, user)
    assert before == asked_of(secured, "bob")


def test_no_user_can_compute_who_is_a_stranger(secured: SecuredProcess) -> None:
    """A user knows its own keys."""
    set_user(secured, FIRST)
    mine = make_credential(MECHANISM, "secret", salt=SALT, iterations=4096)
    for secret in (mine.server_key, mine.stored_key, mine.salt, b"", b"no users"):
        computed = base64.b64encode(decoy_credential(MECHANISM, STRANGERS[0], secret=secret).salt)
        assert computed.decode() != asked_of(secured, STRANGERS[0]).salt
    delete_user(secured, FIRST)
