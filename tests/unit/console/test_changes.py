"""The one gate for changes: read-only mode, and the audit log."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.console.cluster.access import Access, ReadOnlyError, UserClients
from ottla.console.cluster.audit import AuditLog, Outcome
from ottla.console.cluster.jobs import Jobs, TooManyJobsError
from ottla.console.cluster.sampler import Sampler
from ottla.console.settings import ConsoleSettings
from ottla.model.errors import InvalidRequestError, StorageError


def now_ms() -> int:
    return 1_700_000_000_000


def access_of(path: Path | None, *, read_only: bool = False) -> Access:
    settings = ConsoleSettings(bootstrap="127.0.0.1:1", read_only=read_only)
    return Access(
        settings=settings,
        user="alice",
        origin="192.0.2.7",
        clients=UserClients(settings, {}, None),
        audit=AuditLog(path, now_ms),
        jobs=Jobs(now_ms),
        sampler=Sampler(now_ms),
    )


def lines_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def change(access: Access, work: Callable[[], None]) -> None:
    async with access.change("delete topic", "orders", {"partitions": 3}):
        work()


async def test_a_change_is_recorded_before_and_after(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "audit.jsonl"
    access = access_of(path)
    access.audit.open()
    before: list[object] = []
    await change(access, lambda: before.extend(each["outcome"] for each in lines_of(path)))
    assert ["started"] == before
    started, ended = lines_of(path)
    assert started["id"] == ended["id"]
    assert "done" == ended["outcome"]
    assert ("alice", "192.0.2.7", "delete topic", "orders", {"partitions": 3}, now_ms()) == tuple(
        ended[name] for name in ("user", "origin", "action", "target", "details", "at_ms")
    )
    assert 0o600 == path.stat().st_mode & 0o777


async def test_a_change_that_fails_is_recorded_with_its_reason(tmp_path: Path) -> None:
    access = access_of(tmp_path / "audit.jsonl")

    def fail() -> None:
        raise InvalidRequestError("no such topic")

    with pytest.raises(InvalidRequestError):
        await change(access, fail)
    (entry,) = access.audit.newest()
    assert (Outcome.FAILED, "no such topic") == (entry.outcome, entry.error)


async def test_a_read_only_console_changes_nothing(tmp_path: Path) -> None:
    access = access_of(tmp_path / "audit.jsonl", read_only=True)
    done: list[str] = []
    with pytest.raises(ReadOnlyError, match="cannot delete topic orders"):
        await change(access, lambda: done.append("changed"))
    assert [] == done
    assert ["refused"] == [each["outcome"] for each in lines_of(tmp_path / "audit.jsonl")]


async def test_without_an_audit_log_nothing_is_changed(tmp_path: Path) -> None:
    access = access_of(tmp_path)  # a folder cannot be written to
    done: list[str] = []
    with pytest.raises(StorageError, match="cannot write the audit log"):
        await change(access, lambda: done.append("changed"))
    assert [] == done


async def test_a_change_that_was_made_is_not_said_to_be_refused(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    access = access_of(path)

    def disk_fails() -> None:
        path.unlink()
        path.mkdir()

    with pytest.raises(StorageError, match=r"the change was made \(delete topic orders\), but not recorded as done"):
        await change(access, disk_fails)


async def test_the_reason_of_a_failed_change_is_not_hidden_by_the_audit_log(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    def both_fail() -> None:
        path.unlink()
        path.mkdir()
        raise InvalidRequestError("orders does not exist")

    with pytest.raises(InvalidRequestError, match="orders does not exist"):
        await change(access_of(path), both_fail)


async def test_an_entry_after_half_a_line_has_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text('{"id": "torn')
    await change(access_of(path), lambda: None)
    torn, *lines = path.read_text().splitlines()
    assert ('{"id": "torn', ["started", "done"]) == (torn, [json.loads(line)["outcome"] for line in lines])


async def test_the_last_entries_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    access = access_of(path)
    for _ in range(3):
        await change(access, lambda: None)
    with path.open("a") as file:
        file.write('{"id": "torn')
    again = AuditLog(path, now_ms)
    again.open()
    assert access.audit.newest() == again.newest()
    assert 3 == len(again.newest())


async def test_clients_stay_open_for_a_job_that_outlives_the_session() -> None:
    access = access_of(None)
    admin = access.admin()
    go_on, seen = asyncio.Event(), []

    async def work(job: object) -> str:
        await go_on.wait()
        seen.append("open" if not admin._is_closed else "closed")
        return "all done"

    job = access.start_job("export", "orders", work)
    await access.clients.release()
    seen.append("open" if not admin._is_closed else "closed")
    go_on.set()
    await job.wait_end()
    seen.append("open" if not admin._is_closed else "closed")
    assert ["open", "open", "closed", "all done"] == ([*seen, job.outcome])


async def test_a_job_that_cannot_start_does_not_keep_the_clients_open() -> None:
    access = access_of(None)
    admin = access.admin()

    async def work(job: object) -> str:
        await asyncio.Event().wait()
        return ""

    for _ in range(16):
        access.start_job("export", "orders", work)
    with pytest.raises(TooManyJobsError):
        access.start_job("export", "orders", work)
    await access.jobs.close()
    await access.clients.release()
    assert admin._is_closed
