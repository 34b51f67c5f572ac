"""Asks Prometheus for the past of series, without letting any page wait for it.

`past` returns at once what is known, or waits a moment for an answer that is under way; the chart asks again. A query
ends after some seconds, an answer has a bound, at most a few queries run at once, and a Prometheus that cannot be
connected to is tried again only after 15 s. Answers are kept for one step of their times, failures for 15 s; the number
of both is bounded, because browsers choose the ranges.
"""

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.console.history.answers import BadAnswerError, read_answer
from ottla.console.history.queries import Queries
from ottla.console.history.ranges import TimeRange
from ottla.console.settings import PrometheusSettings

if TYPE_CHECKING:
    import httpx

_LOGGER: Final = logging.getLogger(__name__)
_QUERY_SECONDS_MAX: Final = 5.0
_BYTES_MAX: Final = 1 << 20
"""An answer of 720 points has about 25 KB."""
_AT_ONCE_MAX: Final = 4
_KEPT_MAX: Final = 128
_FAILED_SECONDS: Final = 15.0
_CONNECT_SECONDS_MAX: Final = 2.0
_PATIENCE_SECONDS: Final = 0.3
_PATH: Final = "/api/v1/query_range"


class _AwayError(BadAnswerError):
    """Prometheus cannot be connected to, so every query would fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What Prometheus knows of a series."""

    values: Mapping[int, float] = field(default_factory=dict)
    """By time in seconds since 1970; empty if it has none."""
    end: float = math.inf
    """The last time that was asked for: a range that moves is shown for a while with the answer to an earlier one."""
    problem: str = ""
    """Why it cannot be asked, in words for a page; "" if it answered."""
    is_waiting: bool = False
    """Whether its answer is still under way: ask again soon."""


class _Kept:
    """One series in one range: its last answer, and the query that is under way."""

    __slots__ = ("asked_at", "past", "task")

    def __init__(self) -> None:
        self.asked_at = 0.0
        self.past: Past | None = None
        self.task: asyncio.Task[None] | None = None


class Prometheus:
    """One Prometheus server. `monotonic` is a clock in seconds."""

    def __init__(self, settings: PrometheusSettings, monotonic: Callable[[], float]) -> None:
        self._settings = settings
        self._monotonic = monotonic
        self._queries = Queries(settings.labels)
        self._kept: OrderedDict[tuple[str, int, int, int], _Kept] = OrderedDict()
        self._running = asyncio.Semaphore(_AT_ONCE_MAX)
        self._web: httpx.AsyncClient | None = None
        self._away_until = 0.0
        self._away_words = ""
        """Why Prometheus could not be connected to; "" if it could."""
        self._logged: set[str] = set()
        """Failures that the log has: each is logged once."""

    def has(self, kind: str, name: str, step: int = 60) -> bool:
        """Whether it can be asked for this series."""
        return self._queries.query_of(kind, name, step) is not None

    async def past(self, kind: str, name: str, asked: TimeRange) -> Past:
        """What is known of a series, after waiting a moment for Prometheus. Never raises."""
        query = self._queries.query_of(kind, name, asked.step)
        if query is None:
            return Past()
        key = (query, asked.step, asked.seconds, 0 if asked.is_moving else asked.start)
        kept = self._kept.get(key)
        if kept is None:
            kept = self._room_for(key)
            if kept is None:
                return Past(problem="too many charts are being read from Prometheus")
        self._kept.move_to_end(key)
        if kept.task is None and self._is_old(kept, asked):
            if self._monotonic() < self._away_until:
                return Past(problem=self._away_words)
            kept.asked_at = self._monotonic()
            kept.task = asyncio.create_task(self._ask(kept, query, asked))
        if kept.past is None and kept.task is not None:
            await asyncio.wait({kept.task}, timeout=_PATIENCE_SECONDS)
        return Past(is_waiting=True) if kept.past is None else kept.past

    async def close(self) -> None:
        """Ends the queries that are under way, and the connections."""
        tasks = [each.task for each in self._kept.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._kept.clear()
        if self._web is not None:
            await self._web.aclose()

    def _room_for(self, key: tuple[str, int, int, int]) -> _Kept | None:
        if len(self._kept) >= _KEPT_MAX:
            oldest = next((name for name, each in self._kept.items() if each.task is None), None)
            if oldest is None:
                return None
            del self._kept[oldest]
        made = self._kept[key] = _Kept()
        return made

    def _is_old(self, kept: _Kept, asked: TimeRange) -> bool:
        if kept.past is None:
            return True
        lasts = _FAILED_SECONDS if kept.past.problem else max(asked.step, _FAILED_SECONDS)
        return self._monotonic() - kept.asked_at >= lasts

    async def _ask(self, kept: _Kept, query: str, asked: TimeRange) -> None:
        try:
            async with self._running:
                if self._monotonic() < self._away_until:
                    kept.past = Past(problem=self._away_words)
                    return
                kept.past = Past(values=await self._answer(query, asked), end=asked.end)
            self._note_answer()
        except BadAnswerError as error:
            kept.past = Past(problem=str(error))
            self._note_failure(error)
        except Exception as error:
            # A chart that waits for ever would be worse.
            kept.past = Past(problem="Prometheus cannot be read")
            _LOGGER.error("cannot read history from Prometheus: %s", self._settings.url, exc_info=error)
        finally:
            kept.task = None

    async def _answer(self, query: str, asked: TimeRange) -> Mapping[int, float]:
        """Raises `BadAnswerError`, whose message has neither the address nor the login."""
        import httpx

        try:
            async with asyncio.timeout(_QUERY_SECONDS_MAX):
                body = await self._body(query, asked)
        except TimeoutError:
            raise BadAnswerError(f"Prometheus did not answer within {_QUERY_SECONDS_MAX:.0f} s") from None
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise _AwayError("Prometheus cannot be connected to") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise BadAnswerError(f"Prometheus's answer broke off ({type(error).__name__})") from None
        return read_answer(body, asked)

    async def _body(self, query: str, asked: TimeRange) -> bytes:
        parameters: dict[str, str | int] = {"query": query, "start": asked.start, "end": asked.end, "step": asked.step}
        parameters["timeout"] = f"{_QUERY_SECONDS_MAX:.0f}s"
        body = bytearray()
        async with self._client().stream("GET", self._settings.url + _PATH, params=parameters) as response:
            if response.status_code != 200:
                raise BadAnswerError(f"Prometheus answered with HTTP status {response.status_code}")
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise BadAnswerError("Prometheus's answer is compressed, which was not asked for")
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > _BYTES_MAX:
                    raise BadAnswerError(f"Prometheus's answer is larger than {_BYTES_MAX >> 20} MiB")
        return bytes(body)

    def _client(self) -> "httpx.AsyncClient":
        if self._web is None:
            # Needs megabytes of memory, which a console without Prometheus does not spend.
            import httpx

            settings = self._settings
            login = None if settings.username is None else (settings.username, settings.password or "")
            # Compressed, a small answer could become a huge one in one step.
            self._web = httpx.AsyncClient(
                auth=login,
                timeout=httpx.Timeout(_QUERY_SECONDS_MAX, connect=_CONNECT_SECONDS_MAX),
                headers={"Accept-Encoding": "identity"},
            )
        return self._web

    def _note_answer(self) -> None:
        if self._away_words:
            _LOGGER.info("Prometheus answers again: %s", self._settings.url)
            self._logged.discard(self._away_words)
        self._away_until, self._away_words = 0.0, ""

    def _note_failure(self, error: BadAnswerError) -> None:
        words = str(error)
        if words not in self._logged:
            _LOGGER.warning("cannot read history from Prometheus: %s: %s", self._settings.url, words)
            self._logged.add(words)
        if isinstance(error, _AwayError):
            self._away_until, self._away_words = self._monotonic() + _FAILED_SECONDS, words
