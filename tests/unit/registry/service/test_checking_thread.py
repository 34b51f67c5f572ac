"""The thread for checks: one after the other, with limits."""

import asyncio
import itertools
import json
import threading
from collections.abc import Iterator, Sequence
from typing import cast

import pytest

from ottla.registry.schemas.languages import LANGUAGES
from ottla.registry.service.checking_thread import CheckingThread
from ottla.registry.state.comparisons import SchemaText
from ottla.registry.state.errors import RegistryError
from ottla.registry.state.parsed_schemas import ParsedSchemas
from ottla.registry.state.schema_checks import SchemaCheck
from tests.waiting import settle


class Check:
    """Some pieces of work; each waits for a release."""

    def __init__(self, pieces: int = 1) -> None:
        self.versions: Sequence[None] = [None] * pieces
        self.release = threading.Event()
        self.done = 0

    def pieces(self) -> Iterator[None]:
        for _ in self.versions:
            self.release.wait(10)
            self.done += 1
            yield


def as_check(check: Check) -> SchemaCheck:
    return cast(SchemaCheck, check)


async def test_a_check_ends_at_its_limit_of_time() -> None:
    times = iter(range(100))
    thread = CheckingThread(seconds_max=3, now=lambda: float(next(times)))
    check = Check(10)
    check.release.set()
    with pytest.raises(RegistryError, match="with 10 versions, takes more than 3 seconds") as refused:
        await thread.run(as_check(check))
    assert (503, 4) == (refused.value.status, check.done)
    after = Check()
    after.release.set()
    await thread.run(as_check(after))
    assert 1 == after.done
    thread.close()


@pytest.mark.parametrize(
    ("type", "text"),
    [
        ("JSON", json.dumps({"anyOf": [{"properties": {f"p{number}": {}}} for number in range(100)]})),
        ("AVRO", json.dumps([{"type": "fixed", "name": f"f{number}", "size": 4} for number in range(500)])),
        ("PROTOBUF", "message M {" + "".join(f"optional string f{number}={number};" for number in range(1, 500)) + "}"),
    ],
)
@pytest.mark.parametrize("seconds_max", [100, 1200])
async def test_a_check_ends_at_its_limit_in_the_middle_of_a_piece(type: str, text: str, seconds_max: int) -> None:
    """The clock counts how often it is asked: parsing ends after a hundred times, comparing after a thousand more."""
    schema = SchemaText(type, text, {})
    other = SchemaText(type, text.replace("f1", "g1").replace("p1", "q1"), {})
    check = SchemaCheck(
        schemas=ParsedSchemas(LANGUAGES),
        candidate=schema,
        versions=[other] * 2,
        level="FULL",
        is_lenient=False,
        is_new=True,
        normalize=False,
        is_registration=True,
    )
    times = itertools.count()
    thread = CheckingThread(seconds_max=seconds_max, now=lambda: float(next(times)))
    with pytest.raises(RegistryError, match=f"takes more than {seconds_max} seconds"):
        await thread.run(check)
    assert seconds_max + 2 == next(times)
    thread.close()


async def test_clients_take_turns() -> None:
    thread = CheckingThread()
    checks = [Check() for _ in range(4)]
    running = [
        asyncio.create_task(thread.run(as_check(check), client))
        for check, client in zip(checks, ("a", "a", "a", "b"), strict=True)
    ]
    await settle()
    for check in (checks[0], checks[1], checks[3]):
        check.release.set()
        await running[checks.index(check)]
    assert [1, 1, 0, 1] == [check.done for check in checks]
    checks[2].release.set()
    await running[2]
    thread.close()


async def test_closing_ends_the_check_that_is_under_way() -> None:
    thread = CheckingThread()
    check = Check(2)
    running = asyncio.create_task(thread.run(as_check(check)))
    await settle()
    thread.close()
    check.release.set()
    with pytest.raises(RegistryError, match="try again"):
        await running
    assert 1 == check.done


async def test_few_may_wait_and_not_for_long() -> None:
    thread = CheckingThread(waiting_max=1, wait_seconds_max=0.05)
    first = Check()
    running = asyncio.create_task(thread.run(as_check(first)))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(thread.run(as_check(Check())))
    await asyncio.sleep(0)
    with pytest.raises(RegistryError, match="busy with checks of large schemas: 1 are waiting") as refused:
        await thread.run(as_check(Check()))
    assert 503 == refused.value.status
    with pytest.raises(RegistryError, match=r"busy with checks of large schemas for 0\.05 seconds"):
        await waiting
    first.release.set()
    await running
    thread.close()


async def test_a_check_whose_client_goes_away_keeps_the_thread() -> None:
    thread = CheckingThread()
    first, second = Check(), Check()
    running = asyncio.create_task(thread.run(as_check(first)))
    await settle()
    running.cancel()
    second.release.set()
    after = asyncio.create_task(thread.run(as_check(second)))
    await asyncio.sleep(0.05)  # in which the thread would take the second check if it were free
    assert 0 == second.done
    first.release.set()
    await after
    assert (1, 1) == (first.done, second.done)
    thread.close()
