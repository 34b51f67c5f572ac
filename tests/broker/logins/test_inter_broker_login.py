"""How a broker logs in at others with a token of an endpoint."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client.properties import security_options
from ottla.security.sasl.authentication_error import AuthenticationError
from tests.broker.logins.token_endpoint import CLIENT, SCOPE, SECRET, TokenEndpoint
from tests.unit.broker.logins.test_inter_broker_login import CREDENTIALS, JAAS, MODULE, URL, first_message, login


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with TokenEndpoint() as made:
        yield made


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
