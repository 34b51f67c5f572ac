"""Pages about groups, transactions, dead letters and queues for a user who may see little: no error, less content."""

from collections.abc import Callable, Iterator

import pytest

from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.producer.blocking_producer import Producer
from ottla.console.settings import AuthMode
from ottla.testing import SecuredBroker
from ottla.testing.secured_broker import ADMIN
from tests.unit.console.visitor import Visitor


@pytest.fixture(scope="module")
def restricted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """Alice may describe one topic and its dead letters, and one group."""
    with SecuredBroker(tmp_path_factory.mktemp("restricted")) as made:
        for topic in ("mine", "dlq.mine", "theirs", "dlq.theirs"):
            made.create_topic(topic)
        with Producer(**made.client_options()) as producer:
            for topic in ("mine", "dlq.mine", "dlq.theirs"):
                producer.send(topic, b"secret of " + topic.encode()).get(60)
        for group in ("my-group", "their-group"):
            with Consumer("mine", group_id=group, auto_offset_reset="earliest", **made.client_options()) as consumer:
                while not consumer.poll(timeout_ms=500):
                    pass
                consumer.commit()
        made.allow("alice", "Describe", topic="mine")
        made.allow("alice", "Describe", topic="dlq.mine")
        made.allow("alice", "Describe", group="my-group")
        yield made


@pytest.fixture
def alice(restricted: SecuredBroker, visit: Callable[..., Visitor]) -> Visitor:
    options = dict(restricted.client_options("alice"))
    return visit(options.pop("bootstrap_servers"), client_options=options)


def test_groups(alice: Visitor) -> None:
    page = alice.get("/groups")
    assert (200, True, False) == (page.status_code, "my-group" in page.text, "their-group" in page.text)
    assert 200 == alice.get("/groups/my-group").status_code
    assert 403 == alice.get("/groups/their-group").status_code
    refused = alice.post("/groups/my-group/reset", {"plan": "mine,0,0"})
    assert 400 <= refused.status_code < 500


def test_dead_letters(alice: Visitor) -> None:
    page = alice.get("/dead-letters")
    assert (200, True, False) == (page.status_code, "dlq.mine" in page.text, "dlq.theirs" in page.text)
    denied = alice.get("/dead-letters/dlq.mine")
    assert (403, False) == (denied.status_code, "secret" in denied.text)
    assert alice.get("/dead-letters/dlq.theirs").status_code in (403, 404)


def test_transactions_and_queues(alice: Visitor) -> None:
    page = alice.get("/transactions")
    assert (200, True) == (page.status_code, "No transaction is open" in page.text)
    assert alice.get("/queues").status_code in (200, 403)
    assert alice.get("/topics/mine/queues").status_code in (200, 403)


def test_paths_of_log_dirs_are_what_brokers_tell_the_user(
    restricted: SecuredBroker, visit: Callable[..., Visitor]
) -> None:
    """The samples of the console's own user, who may see everything, have them; alice may not see them."""
    options = dict(restricted.client_options())
    console = visit(options.pop("bootstrap_servers"), client_options=options, auth=AuthMode.CLUSTER)
    console.run(lambda: console.console.sampler.sample(console.console.own_clients.admin()))
    (path,) = {each.path for probe in console.console.sampler.probes.values() for each in probe.log_dirs}
    for user, is_shown in (("alice", False), (ADMIN, True)):
        console.client.cookies.clear()
        console.get("/login")
        signed_in = console.post("/login", {"user": user, "password": restricted.password_of(user)})
        assert 303 == signed_in.status_code
        page = console.get("/topics/mine/partitions")
        assert (200, is_shown) == (page.status_code, path in page.text), user
        assert "on leaders" in page.text
