"""Sessions end by themselves, and failed logins have bounds."""

import threading
from collections.abc import Callable

import pytest

from ottla.console import application
from ottla.console.settings import AuthMode
from ottla.console.web.sessions import Sessions
from tests.unit.console.visitor import Visitor


def test_a_fault_while_tokens_are_renewed_does_not_keep_sessions_from_ending(
    visit: Callable[..., Visitor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "_SWEEP_SECONDS", 0.01)
    is_ended = threading.Event()
    faults = [ValueError("odd"), RuntimeError("odd")]

    async def renew_tokens(_: Sessions) -> None:
        if faults:
            raise faults.pop()

    async def end_expired(_: Sessions) -> None:
        is_ended.set()

    monkeypatch.setattr(Sessions, "renew_tokens", renew_tokens)
    monkeypatch.setattr(Sessions, "end_expired", end_expired)
    visit("127.0.0.1:1", auth=AuthMode.CLUSTER)
    assert is_ended.wait(30)
