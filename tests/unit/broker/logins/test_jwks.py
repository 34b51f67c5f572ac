"""Keys from files and URLs: rotation, failures, and the places from which they are not fetched."""

import asyncio
import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.configs.sasl_config import JwksConfig
from ottla.broker.logins import jwks as jwks_module
from ottla.broker.logins.jwks import Jwks
from ottla.env.real_clock import RealClock
from ottla.model.errors import InvalidConfigError, InvalidRequestError
from ottla.security.sasl.jwt_validation import BadTokenError, TokenRules, UnknownKeyError
from ottla.transport.identity_provider import CannotFetchError, check_url
from tests.unit.broker.logins.secured import KEY, OTHER_KEY, jwks_text, token
from tests.waiting import until

RULES = TokenRules()


def now_ms() -> int:
    return int(time.time() * 1000)


def made(url: str, **configs: Any) -> Jwks:
    return Jwks(JwksConfig(url=url, **configs), RealClock())


async def test_no_token_is_accepted_before_there_are_keys(tmp_path: Path) -> None:
    keys = made((tmp_path / "missing.json").as_uri())
    with pytest.raises(BadTokenError, match="no keys"):
        keys.verify(token(), RULES, now_ms())
    with pytest.raises(OSError, match="No such file"):
        await keys.fetch()
    with pytest.raises(BadTokenError, match="no keys"):
        keys.verify(token(), RULES, now_ms())


async def test_keys_of_a_file_are_rotated_and_kept_if_the_new_ones_are_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(jwks_module, "_FILE_SECONDS", 0.01)
    file = tmp_path / "keys with space.json"

    def write(text: str) -> None:
        new = tmp_path / "new"
        new.write_text(text)
        os.replace(new, file)

    with caplog.at_level(logging.WARNING):
        keys = made(file.as_uri(), backoff_ms=5, backoff_ms_max=10)
        task = asyncio.create_task(keys.fetch_forever())
        try:
            async with asyncio.timeout(60):
                await until(lambda: keys.failures > 2)  # The file does not exist.
                write(jwks_text(KEY))
                await until(lambda: keys.keys is not None)
                assert "alice" == keys.verify(token(KEY), RULES, now_ms()).name
                with pytest.raises(UnknownKeyError):
                    keys.verify(token(OTHER_KEY), RULES, now_ms())
                before = keys.keys
                write("nonsense")
                await until(lambda: keys.failures > 2)
                assert before is keys.keys
                assert "alice" == keys.verify(token(KEY), RULES, now_ms()).name
                write(jwks_text(OTHER_KEY))
                await until(lambda: before is not keys.keys)
                assert "alice" == keys.verify(token(OTHER_KEY), RULES, now_ms()).name
                with pytest.raises(UnknownKeyError):
                    keys.verify(token(KEY), RULES, now_ms())
        finally:
            task.cancel()
    assert "the keys fetched before are still used" in caplog.text


@pytest.mark.parametrize(
    "url",
    [
        "http://issuer.example/jwks",
        "http://10.0.0.1/jwks",
        "http://169.254.169.254/latest/meta-data",
        "ftp://issuer.example/jwks",
        "file:relative.json",
        "file://host/jwks.json",
        "https://",
        "https://user:secret@issuer.example/jwks",
        "jwks.json",
        "",
    ],
)
def test_urls_that_are_refused_at_the_start(url: str) -> None:
    with pytest.raises(InvalidConfigError) as error:
        check_url("sasl.oauthbearer.jwks.endpoint.url", url, ())
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "address",
    ["10.0.0.1", "192.168.1.1", "172.16.0.1", "169.254.169.254", "100.64.0.1", "127.0.0.1", "::1", "fe80::1%lo",
     "fd00::1", "::ffff:10.0.0.1", "0.0.0.0", "224.0.0.1"],
)  # fmt: skip
async def test_names_that_lead_into_the_local_network_are_refused(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "socket.getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("93.184.216.34", 443)), (0, 0, 0, "", (address, 443))]
    )

    with pytest.raises(CannotFetchError, match="private network"):
        await made("https://issuer.example/jwks").fetch()


async def test_a_file_without_keys_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text('{"keys": []}')

    with pytest.raises(InvalidRequestError, match="no usable public key"):
        await made((tmp_path / "keys.json").as_uri()).fetch()
