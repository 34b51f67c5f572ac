"""Keys from files and URLs: rotation, failures, and the places from which they are not fetched."""

import asyncio
import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla import AsyncAdmin
from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.broker.configs.sasl_config import JwksConfig
from ottla.broker.logins import jwks as jwks_module
from ottla.broker.logins.jwks import Jwks
from ottla.env.real_clock import RealClock
from ottla.model.errors import InvalidConfigError
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.security.sasl.jwt_validation import TokenRules, UnknownKeyError
from ottla.transport.identity_provider import CannotFetchError
from tests.unit.broker.logins.secured import KEY, OTHER_KEY, bootstrap, jwks_text, oauth_settings, token
from tests.waiting import PATIENCE_SECONDS, until

RULES = TokenRules()


def now_ms() -> int:
    return int(time.time() * 1000)


def made(url: str, **configs: Any) -> Jwks:
    return Jwks(JwksConfig(url=url, **configs), RealClock())


class _Issuer(http.server.BaseHTTPRequestHandler):
    content = b""
    status = 200
    fetched = 0
    may_answer = threading.Event()

    def do_GET(self) -> None:
        type(self).fetched += 1
        assert self.may_answer.wait(PATIENCE_SECONDS)
        self.send_response(self.status)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        self.wfile.write(self.content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def issuer() -> Iterator[tuple[type[_Issuer], str]]:
    class Issuer(_Issuer):
        content = jwks_text(KEY).encode()
        may_answer = threading.Event()

    Issuer.may_answer.set()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Issuer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield Issuer, f"http://127.0.0.1:{server.server_port}/jwks?x=1"
        server.shutdown()
        thread.join()


async def can_log_in(broker: Broker) -> bool:
    """With a token that was signed with the issuer's key."""
    login: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    try:
        async with AsyncAdmin(bootstrap_servers=bootstrap(broker), sasl_oauth_token_provider=token, **login) as admin:
            await admin.list_topics()
    except AuthenticationError:
        return False
    return True


async def test_the_broker_starts_once_it_has_the_keys(tmp_path: Path, issuer: tuple[type[_Issuer], str]) -> None:
    handler, url = issuer
    handler.may_answer.clear()
    settings = oauth_settings(tmp_path, **{"sasl.oauthbearer.jwks.endpoint.url": url})
    broker = Broker(BrokerConfig.parse(settings=settings))
    starting = asyncio.create_task(broker.start())
    try:
        await until(lambda: handler.fetched)
        # It has all it waits for but the keys; so it would be ready within a few turns of the loop.
        for _ in range(200):
            assert not broker.is_ready
            await asyncio.sleep(0)
        handler.may_answer.set()
        await starting
        assert await can_log_in(broker)
    finally:
        handler.may_answer.set()
        await asyncio.gather(starting, return_exceptions=True)
        await broker.stop()


async def test_the_broker_starts_without_keys_once_it_has_looked_for_them(tmp_path: Path) -> None:
    settings = oauth_settings(tmp_path)
    async with Broker(BrokerConfig.parse(settings=settings)) as broker:
        assert await can_log_in(broker)
    (tmp_path / "jwks.json").unlink()
    async with Broker(BrokerConfig.parse(settings=settings)) as broker:
        assert not await can_log_in(broker)


async def test_an_unknown_key_is_the_reason_for_another_fetch(issuer: tuple[type[_Issuer], str]) -> None:
    handler, url = issuer
    keys = made(url)
    task = asyncio.create_task(keys.fetch_forever())
    try:
        async with asyncio.timeout(60):
            await until(lambda: keys.keys is not None)
            before = keys.keys
            handler.content = jwks_text(OTHER_KEY).encode()
            await until(lambda: not keys._wanted.is_set())
            for _ in range(50):
                with pytest.raises(UnknownKeyError):
                    keys.verify(token(OTHER_KEY), RULES, now_ms())
            await until(lambda: before is not keys.keys)
            assert "alice" == keys.verify(token(OTHER_KEY), RULES, now_ms()).name
    finally:
        task.cancel()
    assert 2 == handler.fetched, "one fetch at the start, one for fifty tokens"


@pytest.mark.parametrize("status", [301, 302, 404, 500])
def test_other_answers_and_redirects_are_failures(issuer: tuple[type[_Issuer], str], status: int) -> None:
    handler, url = issuer
    handler.status = status

    with pytest.raises(CannotFetchError, match=str(status)):
        asyncio.run(made(url).fetch())
    assert 1 == handler.fetched


def test_a_large_answer_is_refused(issuer: tuple[type[_Issuer], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks_module, "KEYS_BYTES_MAX", 100)

    with pytest.raises(CannotFetchError, match="larger than 100"):
        asyncio.run(made(issuer[1]).fetch())


def test_a_private_address_can_be_allowed(issuer: tuple[type[_Issuer], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The URL must be listed exactly as it is configured."""
    port = issuer[1].split(":")[2].split("/")[0]
    url = f"http://issuer.internal:{port}/jwks"
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: [(2, 1, 6, "", ("127.0.0.1", int(port)))])

    with pytest.raises(InvalidConfigError):
        made(url)
    keys = made(url, allowed_urls=(url,))
    asyncio.run(keys.fetch())
    assert keys.keys is not None
