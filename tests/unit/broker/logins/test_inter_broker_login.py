"""How a broker logs in at others, from its configs: where a token comes from, and which configs are refused."""

import asyncio
from pathlib import Path

import pytest

from ottla.broker.configs.configuration import BrokerConfig
from ottla.broker.logins.inter_broker_login import UNSECURED_LOGIN, InterBrokerLogin, inter_broker_login
from ottla.env.real_clock import RealClock
from ottla.security.sasl.authentication_error import AuthenticationError
from tests.broker.logins.token_endpoint import CLIENT, SECRET
from tests.unit.broker.logins.secured import oauth_settings

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
JAAS = "listener.name.clients.oauthbearer.sasl.jaas.config"
URL = "sasl.oauthbearer.token.endpoint.url"
CREDENTIALS = {
    "sasl.oauthbearer.client.credentials.client.id": CLIENT,
    "sasl.oauthbearer.client.credentials.client.secret": SECRET,
}


def login(folder: Path, **settings: str) -> InterBrokerLogin:
    configs = oauth_settings(folder, **{"sasl.mechanism.inter.broker.protocol": "OAUTHBEARER", **settings})
    return inter_broker_login(BrokerConfig.parse(settings=configs), "CLIENTS", RealClock())


def first_message(found: InterBrokerLogin) -> str:
    async def prepared() -> str:
        mechanism = found.make()
        await mechanism.prepare()
        return mechanism.first().decode()

    return asyncio.run(prepared())


def test_token_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a token"
    path.write_text("a.b.c\n")
    found = login(tmp_path, **{URL: path.as_uri()})
    assert "Bearer a.b.c\x01" in first_message(found)
    path.write_text("d.e.f")
    assert "Bearer d.e.f\x01" in first_message(found), "it is read at every login"
    path.unlink()
    with pytest.raises(AuthenticationError, match="cannot read the token"):
        first_message(found)


def test_unsecured_token_needs_its_handler(tmp_path: Path) -> None:
    jaas = {JAAS: f'{MODULE} unsecuredLoginStringClaim_sub="broker";'}
    with pytest.raises(AuthenticationError, match=r"sasl\.oauthbearer\.token\.endpoint\.url: set it"):
        login(tmp_path, **jaas)
    handler = {"listener.name.clients.oauthbearer.sasl.login.callback.handler.class": UNSECURED_LOGIN}
    assert ".\x01" in first_message(login(tmp_path, **jaas, **handler))
    with pytest.raises(AuthenticationError, match="set unsecuredLoginStringClaim_sub"):
        login(tmp_path, **{JAAS: f"{MODULE};"}, **handler)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({URL: "https://id.example/token"}, "client.id"),
        ({URL: "http://id.example/token", **CREDENTIALS}, "only for this machine"),
        ({URL: "ftp://id.example/token", **CREDENTIALS}, "not supported"),
        ({URL: "https://user:hidden@id.example/token", **CREDENTIALS}, "not supported"),
        ({URL: "file:///t", "sasl.login.callback.handler.class": "com.example.Login"}, "com.example.Login is not"),
    ],
)
def test_configs_that_are_refused(tmp_path: Path, settings: dict[str, str], words: str) -> None:
    with pytest.raises(AuthenticationError, match=words) as caught:
        login(tmp_path, **settings)
    assert SECRET not in str(caught.value)
    assert "hidden" not in str(caught.value)
