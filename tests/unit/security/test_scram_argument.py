"""Users of `--add-scram`, as kafka-storage takes them."""

import base64

import pytest

from ottla.model.errors import InvalidConfigError
from ottla.security.scram_argument import parse_scram_user
from ottla.security.scram_credential import ScramMechanism, make_credential, salted_password


def salt_of(size: int) -> bytes:
    return b"s" * size


@pytest.mark.parametrize(
    ("text", "name", "password", "iterations"),
    [
        ("SCRAM-SHA-256=[name=alice,password=secret]", "alice", "secret", 4096),
        ("SCRAM-SHA-512=[name=al ice, iterations=8192, password=x]", "al ice", "x", 8192),
        ('SCRAM-SHA-256=[name="a,b",password="c],\\"d"]', "a,b", 'c],"d', 4096),
        ("SCRAM-SHA-256=[password=p=q,name=alice]", "alice", "p=q", 4096),
    ],
)
def test_users_with_a_password(text: str, name: str, password: str, iterations: int) -> None:
    user = parse_scram_user(text, salt_of)

    assert (name, password) == (user.name, user.password)
    assert make_credential(user.mechanism, password, salt=b"s" * 26, iterations=iterations) == user.credential
    assert password not in repr(user)


def test_a_salted_password() -> None:
    mechanism, salt = ScramMechanism.SHA_512, b"some salt"
    salted = base64.b64encode(salted_password(mechanism, "secret", salt, 4096)).decode()
    text = f'SCRAM-SHA-512=[name=alice,iterations=4096,salt="c29tZSBzYWx0",saltedpassword="{salted}"]'

    user = parse_scram_user(text, salt_of)

    assert make_credential(mechanism, "secret", salt=salt, iterations=4096) == user.credential


@pytest.mark.parametrize(
    "text",
    [
        "",
        "alice:hunter2",
        "SCRAM-SHA-1=[name=alice,password=hunter2]",
        "PLAIN=[name=alice,password=hunter2]",
        "SCRAM-SHA-256=[name=alice]",
        "SCRAM-SHA-256=[name=alice,password=]",
        "SCRAM-SHA-256=[password=hunter2]",
        "SCRAM-SHA-256=[name=alice,name=bob,password=hunter2]",
        "SCRAM-SHA-256=[name=alice,password=hunter2,iterations=1]",
        "SCRAM-SHA-256=[name=alice,password=hunter2,iterations=99999999]",
        "SCRAM-SHA-256=[name=alice,password=hunter2,color=red]",
        "SCRAM-SHA-256=[name=älice,password=hunter2]",
        "SCRAM-SHA-256=[name=alice,password=hunter2,saltedpassword=aGk=]",
        "SCRAM-SHA-256=[name=alice,saltedpassword=aGk=]",
        "SCRAM-SHA-256=[name=alice,saltedpassword=?,salt=aGk=]",
    ],
)
def test_what_is_not_a_user_is_refused_without_its_secret(text: str) -> None:
    with pytest.raises(InvalidConfigError, match="--add-scram") as error:
        parse_scram_user(text, salt_of)

    assert "hunter2" not in str(error.value)
