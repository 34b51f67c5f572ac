"""Warnings about clients that fail: few lines, and nothing that is lost."""

import pytest

from ottla.transport import refusal_log
from ottla.transport.refusal_log import RefusalKind, RefusalLog

HOST = "10.0.0.7"
ADDRESS = "10.0.0.7:40000"


@pytest.fixture
def log() -> RefusalLog:
    return RefusalLog()


def test_a_failed_login_is_logged_although_a_handshake_failed_just_before(
    log: RefusalLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.add(RefusalKind.HANDSHAKE, HOST, ADDRESS, "no cipher suite in common", 0.0)
    log.add(RefusalKind.LOGIN, HOST, ADDRESS, "login failed", 1.0)
    log.add(RefusalKind.REQUEST, HOST, ADDRESS, "an invalid request", 2.0)
    assert ["no cipher suite in common", "login failed", "an invalid request"] == [
        line.rpartition(": ")[2] for line in caplog.messages
    ]


def test_one_line_a_minute_for_each_address(log: RefusalLog, caplog: pytest.LogCaptureFixture) -> None:
    for second in range(60):
        log.add(RefusalKind.LOGIN, HOST, ADDRESS, "login failed", float(second))
    log.add(RefusalKind.LOGIN, "10.0.0.8", "10.0.0.8:1", "login failed", 1.0)
    assert 2 == len(caplog.messages)
    log.add(RefusalKind.LOGIN, HOST, ADDRESS, "login failed", 61.0)
    assert (
        f"closed connection from {ADDRESS} (and 59 more connections from {HOST} in the last 61 s): login failed"
        == (caplog.messages[-1])
    )


def test_failures_are_reported_also_if_no_more_come(log: RefusalLog, caplog: pytest.LogCaptureFixture) -> None:
    for second in range(3):
        log.add(RefusalKind.LOGIN, HOST, ADDRESS, f"attempt {second}", float(second))
    log.report_counted(59.0)
    assert 1 == len(caplog.messages)
    log.report_counted(60.0)
    log.report_counted(600.0)
    assert [
        f"closed connection from {ADDRESS}: attempt 0",
        f"closed 2 more connections from {HOST} in the last 60 s because of their logins; the last one: attempt 2",
    ] == caplog.messages


def test_many_addresses_take_bounded_memory_and_lose_no_count(
    log: RefusalLog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusal_log, "WARNINGS_KEPT_MAX", 10)
    for number in range(10):
        for _ in range(2):
            log.add(RefusalKind.LOGIN, f"10.0.1.{number}", f"10.0.1.{number}:1", "login failed", 0.0)
    log.add(RefusalKind.LOGIN, HOST, ADDRESS, "login failed", 1.0)
    assert 10 == sum(line.startswith("closed 1 more connections") for line in caplog.messages)
    assert 11 == sum(line.startswith("closed connection from") for line in caplog.messages)
