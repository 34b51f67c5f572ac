"""How a broker logs in at others, from its configs: where a token comes from, and which configs are refused."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.configs.configuration import BrokerConfig
from ottla.broker.logins.inter_broker_login import InterBrokerLogin, inter_broker_login
from ottla.client.properties import security_options
from ottla.env.real_clock import RealClock
from ottla.security.sasl.authentication_error import AuthenticationError
from tests.broker.logins.token_endpoint import CLIENT, SCOPE, SECRET, TokenEndpoint
from tests.unit.broker.logins.secured import oauth_settings

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
JAAS = "listener.name.clients.oauthbearer.sasl.jaas.config"
URL = "sasl.oauthbearer.token.endpoint.url"
CREDENTIALS = {
    "sasl.oauthbearer.client.credentials.client.id": CLIENT,
    "sasl.oauthbearer.client.credentials.client.secret": SECRET,
}


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with TokenEndpoint() as made:
        yield made


def login(folder: Path, **settings: str) -> InterBrokerLogin:
    configs = oauth_settings(folder, **{"sasl.mechanism.inter.broker.protocol": "OAUTHBEARER", **settings})
    return inter_broker_login(BrokerConfig.parse(settings=configs), "CLIENTS", RealClock())


def first_message(found: InterBrokerLogin) -> str:
    async def prepared() -> str:
        mechanism = found.make()
        await mechanism.prepare()
        return mechanism.first().decode()

    return asyncio.run(prepared())


def test_token_of_an_endpoint(endpoint: TokenEndpoint, tmp_path: Path) -> None:
    found = login(tmp_path, **{URL: endpoint.url, **CREDENTIALS, "sasl.oauthbearer.scope": SCOPE})
    assert first_message(found) == first_message(found)
    assert [{"grant_type": "client_credentials", "scope": SCOPE}] == endpoint.asked, "all logins share a token"
    assert found.renew_forever is not None


def test_credentials_in_the_options_of_the_login_module(endpoint: TokenEndpoint, tmp_path: Path) -> None:
    jaas = f'{MODULE} clientId="{CLIENT}" clientSecret="{SECRET}" scope="{SCOPE}";'
    assert "Bearer ey" in first_message(login(tmp_path, **{URL: endpoint.url, JAAS: jaas}))
    assert SCOPE == endpoint.asked[0]["scope"]


@pytest.mark.parametrize("status", [302, 307, 400, 500])
def test_endpoint_that_refuses_or_redirects(endpoint: TokenEndpoint, tmp_path: Path, status: int) -> None:
    endpoint.status, endpoint.location = status, endpoint.url
    with pytest.raises(AuthenticationError, match=str(status)) as caught:
        first_message(login(tmp_path, **{URL: endpoint.url, **CREDENTIALS}))
    assert SECRET not in str(caught.value)
    assert 1 == len(endpoint.asked), "the secret is not sent elsewhere"


@pytest.mark.parametrize("status", [200, 302, 400])
def test_clients_ask_the_endpoint_in_the_same_way(endpoint: TokenEndpoint, status: int) -> None:
    endpoint.status, endpoint.location = status, endpoint.url if status == 302 else ""
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", URL: endpoint.url}
    provider = security_options({**properties, **CREDENTIALS})["sasl_oauth_token_provider"]
    if status == 200:
        assert 3 == len(asyncio.run(provider()).split("."))
    else:
        with pytest.raises(AuthenticationError, match=str(status)):
            asyncio.run(provider())
    assert 1 == len(endpoint.asked), "redirects are not followed"
