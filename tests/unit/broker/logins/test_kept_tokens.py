"""A token that all connections share: fetched once, renewed in time, and used as long as it is valid."""

import asyncio
import logging
import time

import pytest

from ottla.broker.logins.kept_tokens import KeptTokens, expiry_ms
from ottla.env.real_clock import RealClock
from ottla.model.ids import TimestampMs
from ottla.security.sasl.authentication_error import AuthenticationError
from tests.unit.broker.logins.secured import token
from tests.waiting import settle, until

NOW_MS = 1_700_000_000_000


class SetClock(RealClock):
    """Its wall clock stands still until a test sets it; a sleep ends when the wall clock is there."""

    def __init__(self) -> None:
        self.ms = NOW_MS

    def now_ms(self) -> TimestampMs:
        return TimestampMs(self.ms)

    async def sleep(self, seconds: float) -> None:
        end = self.ms + seconds * 1000
        while self.ms < end:  # noqa: ASYNC110  # The clock has no event of its own.
            await asyncio.sleep(0)


class Endpoint:
    """Issues tokens that are valid for ten seconds of the clock."""

    def __init__(self, clock: SetClock) -> None:
        self.issued: list[str] = []
        self.is_down = False
        self._clock = clock

    async def fetch(self) -> str:
        await asyncio.sleep(0)
        if self.is_down:
            raise AuthenticationError("the token endpoint is down")
        self.issued.append(token(exp=self._clock.ms / 1000 + 10, jti=len(self.issued)))
        return self.issued[-1]


async def test_many_logins_ask_once() -> None:
    clock = SetClock()
    endpoint = Endpoint(clock)
    tokens = KeptTokens(endpoint.fetch, clock)
    found = await asyncio.gather(*(tokens.token() for _ in range(20)))
    assert [found[0]] * 20 == found
    assert 1 == len(endpoint.issued)


async def test_renewed_in_time_and_used_while_the_endpoint_is_down(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        clock = SetClock()
        endpoint = Endpoint(clock)
        tokens = KeptTokens(endpoint.fetch, clock)
        renewing = asyncio.create_task(tokens.renew_forever())
        first = await tokens.token()
        clock.ms += 7900
        await settle()
        assert 1 == len(endpoint.issued)
        endpoint.is_down = True
        clock.ms += 200
        await until(lambda: "the one fetched before is still used" in caplog.text)
        assert first == await tokens.token()
        clock.ms = NOW_MS + 10_000
        with pytest.raises(AuthenticationError, match="down"):
            await tokens.token()
        endpoint.is_down = False
        second = await tokens.token()
        assert first != second
        clock.ms += 8100
        await until(lambda: len(endpoint.issued) == 3)
        await until(lambda: tokens._kept is not None and tokens._kept.text == endpoint.issued[2])
        assert endpoint.issued[2] == await tokens.token()
        renewing.cancel()


@pytest.mark.parametrize("text", ["opaque", "a.b.c", "..", "é.é.é", token(exp=None), token(exp=True), token(exp="x")])
async def test_token_of_unknown_expiry_is_fetched_for_every_login(text: str) -> None:
    asked = 0

    async def fetch() -> str:
        nonlocal asked
        asked += 1
        return text

    assert expiry_ms(text) is None
    tokens = KeptTokens(fetch, RealClock())
    assert [text, text] == [await tokens.token() for _ in range(2)]
    assert 2 == asked


def test_expiry() -> None:
    now = int(time.time())
    assert now * 1000 == expiry_ms(token(exp=now))
    assert expiry_ms(token(exp=1e300)) is None
