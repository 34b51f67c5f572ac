"""When clients may ask for their subscription and when they may push."""

from uuid import UUID

import pytest

from ottla.broker.telemetry import telemetry_state
from ottla.broker.telemetry.subscriptions import Subscription, TelemetryClient, wanted_metrics
from ottla.broker.telemetry.telemetry_state import EXPIRY_MS_MIN, Push, TelemetryState
from ottla.model.error_codes import ErrorCode

OK, EARLY = ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED
BYTES_MAX = 1000
INTERVAL_MS = 1000


class Clients:
    """A state and the clients that talk to it, each on its own connection."""

    def __init__(self) -> None:
        self.state = TelemetryState()
        self.now_ms = 0.0
        self.subscribe("a.")

    def subscribe(self, *metrics: str, interval_ms: int = INTERVAL_MS) -> None:
        self.state.replace_subscriptions([Subscription(metrics=metrics, interval_ms=interval_ms, match={})])

    def client(self, number: int) -> TelemetryClient:
        return TelemetryClient(UUID(int=number + 10), f"c{number}", "unknown", "unknown", "h", str(number))

    def get(self, number: int = 0) -> ErrorCode:
        return self.state.get(self.client(number), number, self.now_ms)[0]

    def push(self, number: int = 0, connection: int | None = None, **values: int) -> ErrorCode:
        client = self.client(number)
        found = wanted_metrics(client, self.state._subscriptions)
        push = Push(
            subscription_id=values.get("subscription_id", found.subscription_id),
            is_terminating=bool(values.get("is_terminating", 0)),
            codec=values.get("codec", 4),
            size_bytes=values.get("size_bytes", 10),
        )
        error = self.state.push(client, number if connection is None else connection, push, self.now_ms, BYTES_MAX)
        assert [] == self.state.check()
        return error


@pytest.fixture
def clients() -> Clients:
    return Clients()


def test_a_client_asks_once_and_pushes_once_in_each_interval(clients: Clients) -> None:
    assert (OK, EARLY) == (clients.get(), clients.get())
    clients.now_ms = INTERVAL_MS / 2  # the first push comes at any time, so that clients do not push all at once
    assert (OK, EARLY) == (clients.push(), clients.push())
    clients.now_ms += INTERVAL_MS - 1
    assert (EARLY, EARLY) == (clients.push(), clients.get())
    clients.now_ms += 1
    assert (OK, EARLY) == (clients.push(), clients.push())
    assert 5 == clients.state.throttled


def test_a_subscription_that_changes_is_noticed_at_the_next_push(clients: Clients) -> None:
    clients.get()
    old = clients.state.get(clients.client(0), 0, clients.now_ms)[1].subscription_id
    assert OK == clients.push(subscription_id=old)
    clients.subscribe("b.")
    assert ErrorCode.UNKNOWN_SUBSCRIPTION_ID == clients.push(subscription_id=old)
    assert (OK, OK) == (clients.get(), clients.push())
    assert 1 == clients.state.unknown_subscriptions


def test_a_client_that_asks_after_a_change_is_not_throttled(clients: Clients) -> None:
    clients.get()
    clients.subscribe("b.")
    assert (OK, EARLY) == (clients.get(), clients.get())


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"subscription_id": 5}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"codec": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"codec": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"size_bytes": BYTES_MAX + 1}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"size_bytes": BYTES_MAX}, OK),
        ({"codec": 0}, OK),
    ],
)
def test_pushes_are_checked(clients: Clients, values: dict[str, int], error: ErrorCode) -> None:
    clients.get()
    assert error == clients.push(**values)
    may_ask_again = error in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    assert (OK if may_ask_again else EARLY) == clients.get()


def test_a_terminating_push_comes_at_any_time_and_is_the_last(clients: Clients) -> None:
    clients.get()
    assert (OK, OK) == (clients.push(), clients.push(is_terminating=1))
    clients.now_ms += 10 * INTERVAL_MS
    assert [ErrorCode.INVALID_REQUEST] * 2 == [clients.push(), clients.push(is_terminating=1)]
    clients.state.on_closed(0)
    assert OK == clients.push()


@pytest.mark.parametrize("number", [-10, -9])
def test_reserved_ids_cannot_push(clients: Clients, number: int) -> None:
    assert ErrorCode.INVALID_REQUEST == clients.push(number)
    assert 0 == len(clients.state)


def test_silent_clients_are_forgotten(clients: Clients) -> None:
    clients.get(0)
    clients.push(0, is_terminating=1)
    clients.now_ms = EXPIRY_MS_MIN - 1
    clients.get(1)
    assert 2 == len(clients.state)
    clients.now_ms = EXPIRY_MS_MIN + 10_000
    clients.get(1)
    assert 1 == len(clients.state)
    clients.subscribe("a.", interval_ms=100_000)
    clients.get(2)
    clients.now_ms += 299_999
    clients.get(1)
    assert 2 == len(clients.state)


def test_clients_are_forgotten_with_their_connection(clients: Clients) -> None:
    """One that goes on with another connection belongs to that."""
    clients.get(0)
    clients.get(1)
    clients.push(1, connection=0)
    clients.state.on_closed(1)
    assert 2 == len(clients.state)
    clients.state.on_closed(0)
    assert ([], 0) == (clients.state.check(), len(clients.state))
    clients.state.on_closed(0)


def test_only_so_many_clients_are_remembered(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry_state, "INSTANCES_MAX", 3)
    for number in (0, 1, 2, 0, 3):
        clients.get(number)
    assert (3, []) == (len(clients.state), clients.state.check())
    assert (EARLY, OK) == (clients.get(0), clients.get(1))
