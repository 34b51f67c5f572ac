"""What a connection keeps of an authorizer's decisions: enough for its topics, and not more however it asks."""

import sys

import pytest

from ottla.security.authorizer import allows_cached
from ottla.security.connection_context import ConnectionContext
from ottla.security.resources import Operation, ResourceType
from ottla.security.security_protocol import SecurityProtocol

BYTES_MAX = 1 << 20


class Counting:
    """Decides by name, and counts how often it was asked."""

    allows_all = False

    def __init__(self) -> None:
        self.asked = 0
        self.version = 1

    def allows(
        self, client: ConnectionContext, operation: Operation, resource_type: ResourceType, name: str, /
    ) -> bool:
        self.asked += 1
        return name.startswith("mine")

    def allows_any(self, client: ConnectionContext, operation: Operation, resource_type: ResourceType, /) -> bool:
        raise NotImplementedError


@pytest.fixture
def client() -> ConnectionContext:
    return ConnectionContext(listener="L", security_protocol=SecurityProtocol.SASL_SSL, address="127.0.0.1:1")


def ask(authorizer: Counting, client: ConnectionContext, name: str) -> bool:
    return allows_cached(authorizer, client, Operation.READ, ResourceType.TOPIC, name)


def test_a_decision_is_made_once_until_the_version_changes(client: ConnectionContext) -> None:
    authorizer = Counting()
    assert [True, False, True, False] == [ask(authorizer, client, name) for name in ("mine", "other") * 2]
    assert 2 == authorizer.asked
    authorizer.version = 2
    assert ask(authorizer, client, "mine")
    assert 3 == authorizer.asked


@pytest.mark.parametrize("length", [1, 249, 250, 32_767])
def test_names_that_clients_invent_take_no_memory_for_long(client: ConnectionContext, length: int) -> None:
    authorizer = Counting()
    for number in range(30_000):
        assert not ask(authorizer, client, f"{number}".rjust(length, "x"))
    kept = client.decisions.by_question
    size = sys.getsizeof(kept) + sum(sys.getsizeof(question) + sys.getsizeof(question[2]) for question in kept)
    assert size < BYTES_MAX
    pending = client.decisions.denied.values()
    assert 5 * 300 > sum(len(name) for names in pending for name in names.first)
