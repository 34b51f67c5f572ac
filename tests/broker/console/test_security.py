"""Security: explanations and previews without a cluster, and all pages on a broker with an authorizer."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ottla import Admin
from ottla.console.services.security import (
    acl_key,
)
from ottla.testing import InProcessBroker, SecuredBroker
from tests.broker.console.shown_form import check_asks_again
from tests.unit.console.visitor import Visitor

READ = "allow User:alice READ topic orders literal *"


pytestmark = pytest.mark.ottla_broker({"delegation.token.secret.key": "a-secret"})


@pytest.fixture
def console_of(secured: SecuredBroker, visit: Callable[..., Visitor]) -> Callable[[str], Visitor]:
    """A console with the rights of a user."""

    def opened(user: str) -> Visitor:
        options = secured.client_options(user)
        return visit(options.pop("bootstrap_servers"), client_options=options)

    return opened


def test_users_come_and_go_and_passwords_stay_secret(
    secured: SecuredBroker, console_of: Callable[[str], Visitor], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    console = console_of("admin")
    address = "/security/users/set?user=dora&mechanism=SCRAM-SHA-512"
    secret = "Hush-4711-hush"
    pages = [console.get("/security/users"), console.get(address)]
    assert "User dora gets a password for SCRAM-SHA-512" in pages[1].text
    wrong = console.post(address, {"password": secret, "repeated": "other"})
    assert 422 == wrong.status_code
    done = console.post(address, {"password": secret, "repeated": secret})
    assert (303, "/security/users?q=dora") == (done.status_code, done.headers["location"])
    with Admin(**{**secured.client_options(), "sasl_plain_username": "dora", "sasl_plain_password": secret}) as dora:
        assert dora.describe_cluster().brokers
    pages += [wrong, done, console.get("/security/users?q=dora"), console.get(address), console.get("/audit")]
    assert "is replaced" in pages[-2].text
    written = (tmp_path / "audit.jsonl").read_text()
    assert "create user" in written
    assert not any(secret in each for each in (*(page.text for page in pages), written, caplog.text))
    assert not any(secret in value for page in pages for value in page.headers.values())
    delete = "/security/users/delete?user=dora"
    check_asks_again(console.post(delete, {"confirm": "x"}), "x")
    assert 303 == console.post(delete, {"confirm": "dora"}).status_code
    with Admin(**secured.client_options()) as admin:
        assert "dora" not in admin.describe_user_scram_credentials()


def test_tokens_are_listed_without_their_secret_and_expire(
    secured: SecuredBroker, console_of: Callable[[str], Visitor]
) -> None:
    with Admin(**secured.client_options()) as admin:
        token = admin.create_delegation_token()
        console = console_of("admin")
        shown = console.get("/security/users").text
        assert token.token_id in shown
        assert token.password not in shown
        address = f"/security/tokens/expire?token={token.token_id}"
        assert token.password not in console.get(address).text
        check_asks_again(console.post(address, {"confirm": "x"}), "x")
        assert 303 == console.post(address, {"confirm": token.token_id}).status_code
        assert [] == admin.describe_delegation_token()


def test_acls_are_created_and_removed(secured: SecuredBroker, console_of: Callable[[str], Visitor]) -> None:
    console = console_of("admin")
    new = "/security/acls/new?principal=eve&permission=allow&type=topic&name=eve.&pattern=prefixed&operation=consumer"
    assert "--resource-pattern-type prefixed" in console.get(new).text
    assert 303 == console.post(new).status_code
    with Admin(**secured.client_options()) as admin:
        mine = [each for each in admin.describe_acls() if each.principal == "User:eve"]
        assert {"READ", "DESCRIBE"} == {each.operation.name for each in mine}
        assert "Nothing changes" in console.get(new).text
        removal = console.get("/security/acls/delete?principal=User:eve&type=topic")
        assert "no ACL covers it" in removal.text
        keys = [acl_key(each) for each in mine]
        check_asks_again(console.post("/security/acls/delete", {"acl": keys, "confirm": "yes"}), "yes")
        one = console.post("/security/acls/delete", {"acl": keys[0]})
        assert 303 == one.status_code
        assert mine[1:] == [each for each in admin.describe_acls() if each.principal == "User:eve"]


def test_quotas_are_set_and_removed(secured: SecuredBroker, console_of: Callable[[str], Visitor]) -> None:
    console = console_of("admin")
    address = "/security/quotas/set?kind=user&user=quota-user&producer_byte_rate=1m"
    assert "1.00 MiB/s" in console.get(address).text
    assert 303 == console.post(address).status_code
    assert "user quota-user" in console.get("/security/quotas").text
    refused = console.get("/security/quotas/set?kind=user&user=quota-user&request_percentage=-1").text
    assert "request_percentage must be greater than 0" in refused
    with Admin(**secured.client_options()) as admin:
        assert {"producer_byte_rate": 1048576.0} == admin.describe_client_quotas({"user": "quota-user"}).popitem()[1]
        assert 303 == console.post("/security/quotas/set?kind=user&user=quota-user&producer_byte_rate=").status_code
        assert {} == admin.describe_client_quotas({"user": "quota-user"})
    assert 422 == console.post("/security/quotas/set?kind=user").status_code
    steps = [console.get(f"/security/quotas/set{query}").text for query in ("", "?kind=user", "?kind=user&user=")]
    assert [False, True, True] == ['name="user"' in each for each in steps]
    assert [False, False, True] == ["name the user" in each for each in steps]


def test_a_user_without_permission_is_told_what_is_missing(
    secured: SecuredBroker, console_of: Callable[[str], Visitor]
) -> None:
    secured.allow("mallory", "Read", topic="orders")
    console = console_of("mallory")
    for path, words in (
        ("/security/users", "not permitted: DESCRIBE on cluster"),
        ("/security/acls", "not permitted: DESCRIBE on cluster"),
        ("/security/quotas", "not permitted: DESCRIBE_CONFIGS on cluster"),
        ("/security/explain", "not permitted: DESCRIBE on cluster"),
        ("/security/explain?user=mallory&operation=READ&resource=topic:orders", "not permitted: DESCRIBE on cluster"),
    ):
        found = console.get(path)
        assert (403, True) == (found.status_code, words in found.text), path
    new = "/security/acls/new?principal=mallory&permission=allow&type=topic&name=x&pattern=literal&operation=Read"
    assert 403 == console.post(new).status_code


def test_explains_by_the_acls_of_the_cluster(secured: SecuredBroker, console_of: Callable[[str], Visitor]) -> None:
    secured.allow("alice", "Read", topic="orders")
    console = console_of("admin")
    allowed = console.get("/security/explain?user=alice&operation=DESCRIBE&resource=topic:orders").text
    assert "User:alice may DESCRIBE on topic:orders" in allowed
    assert "An ACL that allows READ also allows DESCRIBE." in allowed
    assert "super.users" in console.get("/security/explain?user=admin&operation=ALTER&resource=cluster").text
    denied = console.get("/security/explain?user=alice&operation=WRITE&resource=topic:orders").text
    assert "may not WRITE" in denied
    typed = console.get("/security/explain?user=alice&operation=READ&type=topic&name=orders&host=10.0.0.1")
    assert (303, True) == (typed.status_code, "resource=topic%3Aorders" in typed.headers["location"])
    assert "does not name a resource" in console.get("/security/explain?user=a&operation=READ&resource=x").text


def test_without_an_authorizer(broker: InProcessBroker, console: Visitor) -> None:
    for path in ("/security/acls", "/security/explain"):
        assert "authorizer.class.name=" in console.get(path).text
    assert 200 == console.get("/security/users").status_code
    assert "/security/users" == console.get("/security").headers["location"]
