"""Fetches the keys that tokens are checked with, from a file or a URL, and again when they change.

A failed fetch keeps the keys that there are, and is tried again with growing pauses. A token with an unknown key asks
for another fetch, at most one every few seconds. Which URLs may be fetched is `ottla.transport.identity_provider`'s.
"""

import asyncio
import logging
import os
from contextlib import suppress
from typing import Final
from urllib.parse import unquote, urlsplit

from ottla.broker.configs.sasl_config import JwksConfig
from ottla.env.ports import Clock
from ottla.model.errors import InvalidRequestError
from ottla.security.sasl.jwt_validation import (
    TokenKeys,
    TokenRules,
    UnknownKeyError,
    VerifiedToken,
    read_keys,
    verify_token,
)
from ottla.transport.identity_provider import CannotFetchError, check_url, fetch

_LOGGER: Final = logging.getLogger(__name__)

KEYS_BYTES_MAX: Final = 1024 * 1024
_UNKNOWN_KEY_SECONDS: Final = 5.0
"""The shortest time between two fetches that unknown keys asked for."""
_FILE_SECONDS: Final = 1.0
"""How often the file is looked at."""


class Jwks:
    """The keys of one URL. `fetch_forever` keeps them fresh; until the first fetch no token is accepted."""

    def __init__(self, config: JwksConfig, clock: Clock) -> None:
        check_url("sasl.oauthbearer.jwks.endpoint.url", config.url, config.allowed_urls)
        self._config = config
        self._clock = clock
        self._keys: TokenKeys | None = None
        self._wanted = asyncio.Event()
        self._has_tried = asyncio.Event()
        self._asked_at = float("-inf")
        self._stamp: tuple[int, int] | None = None
        """Time and size of the file that was read."""
        self.failures = 0
        """Fetches that failed since the last one that did not."""

    @property
    def keys(self) -> TokenKeys | None:
        """The newest keys."""
        return self._keys

    def verify(self, token: str, rules: TokenRules, now_ms: int) -> VerifiedToken:
        """As `verify_token` with the newest keys; an unknown key is the reason for another fetch."""
        try:
            return verify_token(token, self._keys, rules, now_ms)
        except UnknownKeyError:
            now = self._clock.monotonic()
            if now - self._asked_at >= _UNKNOWN_KEY_SECONDS:
                self._asked_at = now
                self._wanted.set()
            raise

    async def fetch_forever(self) -> None:
        """Fetches now, and whenever the keys may have changed, until cancelled."""
        while True:
            try:
                await self.fetch()
                self._has_tried.set()
            except (InvalidRequestError, OSError) as error:
                self._has_tried.set()
                self.failures += 1
                self._warn(error)
                pause_ms = self._config.backoff_ms * 2 ** min(self.failures - 1, 30)
                await self._clock.sleep(min(pause_ms, self._config.backoff_ms_max) / 1000)
                continue
            if self.failures:
                _LOGGER.info("the keys for OAUTHBEARER can be fetched from %s again", self._config.url)
            self.failures = 0
            await self._wait_change()

    async def wait_tried(self) -> None:
        """Returns once the keys were fetched, or could not be fetched at the first attempt."""
        await self._has_tried.wait()

    async def fetch(self) -> None:
        """Fetches the keys now. Raises `InvalidRequestError` or OSError; then the keys stay as they are."""
        url = self._config.url
        if urlsplit(url).scheme == "file":
            content = await asyncio.to_thread(self._read_file, unquote(urlsplit(url).path))
        else:
            content = self._bounded(await fetch(url, self._config.allowed_urls, bytes_max=KEYS_BYTES_MAX))
        self._keys = await asyncio.to_thread(read_keys, content)

    async def _wait_change(self) -> None:
        refresh_seconds = self._config.refresh_ms / 1000
        self._wanted.clear()
        if urlsplit(self._config.url).scheme != "file":
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), refresh_seconds)
            return
        path = unquote(urlsplit(self._config.url).path)
        while not self._wanted.is_set():
            await self._clock.sleep(min(_FILE_SECONDS, refresh_seconds))
            try:
                found = os.stat(path)
            except OSError:
                return
            if (found.st_mtime_ns, found.st_size) != self._stamp:
                return

    def _warn(self, error: Exception) -> None:
        if self.failures & (self.failures - 1) == 0:
            kept = "the keys fetched before are still used" if self._keys is not None else "no token is accepted"
            _LOGGER.warning(
                "cannot fetch the keys for OAUTHBEARER from %s (attempt %d): %s; %s",
                self._config.url,
                self.failures,
                error,
                kept,
            )

    def _read_file(self, path: str) -> bytes:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            self._stamp = found.st_mtime_ns, found.st_size
            return self._bounded(file.read(KEYS_BYTES_MAX + 1))

    @staticmethod
    def _bounded(content: bytes) -> bytes:
        if len(content) > KEYS_BYTES_MAX:
            raise CannotFetchError(f"they are larger than {KEYS_BYTES_MAX} bytes")
        return content
