"""Logins at a registry from client properties: every way, mistakes, and that nothing shows a secret."""

from pathlib import Path

import httpx
import pytest
import trustme

from ottla.model.errors import MisuseError
from ottla.registry.serde.errors import RegistryUnavailableError
from ottla.registry.serde.registry_client import RegistryClient
from ottla.registry.serde.registry_login import RegistryLogin, tls_advice

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="ada" password="hidden word";'


@pytest.mark.parametrize(
    ("properties", "options"),
    [
        ({}, {}),
        ({"sasl.jaas.config": JAAS}, {}),
        ({"basic.auth.user.info": "ada:a:b"}, {"auth": ("ada", "a:b")}),
        ({"schema.registry.basic.auth.user.info": "ada:pw", "basic.auth.user.info": "eve:x"}, {"auth": ("ada", "pw")}),
        (
            {"basic.auth.credentials.source": "SASL_INHERIT", "sasl.jaas.config": JAAS},
            {"auth": ("ada", "hidden word")},
        ),
        ({"bearer.auth.token": "hidden word"}, {"token": "hidden word"}),
    ],
)
def test_options(properties: dict[str, str], options: dict[str, object]) -> None:
    login = RegistryLogin.of(properties)
    assert options == login.options
    assert "hidden word" not in repr(login)


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"basic.auth.user.info": "hidden word"}, "must be USER:PASSWORD"),
        ({"basic.auth.credentials.source": "MAGIC"}, "is not one of URL, USER_INFO, SASL_INHERIT"),
        ({"basic.auth.credentials.source": "USER_INFO"}, "must be USER:PASSWORD"),
        ({"basic.auth.credentials.source": "SASL_INHERIT"}, "sasl.jaas.config"),
        (
            {"basic.auth.credentials.source": "SASL_INHERIT", "sasl.jaas.config": "Module required;"},
            "needs a user name and a password",
        ),
        ({"basic.auth.user.info": "a:hidden word", "bearer.auth.token": "t"}, "not both"),
    ],
)
def test_mistakes(properties: dict[str, str], words: str) -> None:
    with pytest.raises(MisuseError, match=words) as refused:
        RegistryLogin.of(properties)
    assert "hidden word" not in str(refused.value)


def test_truststore(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(authority)
    names = {
        "schema.registry.ssl.truststore.type": "PEM",
        "schema.registry.ssl.truststore.location": str(authority),
        "ssl.truststore.location": "/of/the/brokers",
    }
    context = RegistryLogin.of(names).context
    assert context is not None
    assert 1 == context.cert_store_stats()["x509_ca"]
    with pytest.raises(MisuseError, match=r"schema\.registry\.ssl\.truststore"):
        _ = RegistryLogin.of({**names, "schema.registry.ssl.truststore.location": "/none"}).context


def test_a_password_in_the_url_is_used_and_never_shown() -> None:
    with RegistryClient("http://ada:hidden%20word@127.0.0.1:1", retries=0) as client:
        assert (("http://127.0.0.1:1",), ("ada", "hidden word")) == (client.config.urls, client.config.auth)
        assert "hidden" not in repr(client.config)
        with pytest.raises(RegistryUnavailableError) as failed:
            client.subjects()
    assert "hidden" not in str(failed.value)
    assert "http://127.0.0.1:1" in str(failed.value)
    for wrong in ("ada:hidden@host:8081", "ftp://ada:hidden@host", "http://ada:hidden@a,http://eve:hidden@b"):
        with pytest.raises(ValueError, match="schema registry") as refused:
            RegistryClient(wrong)
        assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("[SSL: CERTIFICATE_VERIFY_FAILED] Hostname mismatch", "connect by a name"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate", "schema.registry.ssl.truststore.location"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", "http://"),
        ("Server disconnected without sending a response.", "https://"),
    ],
)
def test_advice(words: str, advice: str) -> None:
    assert advice in str(tls_advice(httpx.ConnectError(words)))
    assert tls_advice(httpx.ConnectError("Connection refused")) is None
