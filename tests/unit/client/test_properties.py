"""Kafka's client.properties: the file format, and what its security configs become."""

import asyncio
from pathlib import Path

import pytest
import trustme

from ottla.client.options import ClientConfig, configured
from ottla.client.properties import parse_properties, read_properties, security_options
from ottla.model.errors import MisuseError
from ottla.security.security_protocol import SecurityProtocol

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="p";'
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="p" tokenauth="true";'
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required {};"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=b", {"a": "b"}),
        ("  a = b \n", {"a": "b "}),
        ("a:b\nc d\ne", {"a": "b", "c": "d", "e": ""}),
        ("# no\n! no\n\n  # no\na=#yes", {"a": "#yes"}),
        ("a=b \\\n   c \\\n  d", {"a": "b c d"}),
        (r"a\ b\:c=\u00e9\t\\", {"a b:c": "é\t\\"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("a=b\\", {"a": "b"}),
    ],
)
def test_java_format(text: str, found: dict[str, str]) -> None:
    assert found == parse_properties(text)


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes("a=é".encode("latin-1"))
    assert {"a": "é"} == read_properties(path)
    with pytest.raises(MisuseError, match="cannot read"):
        read_properties(tmp_path / "none")


def test_plaintext() -> None:
    assert {"security_protocol": "PLAINTEXT"} == security_options({"group.id": "g", "retries": "3"})


def test_sasl_ssl(tmp_path: Path) -> None:
    authority = trustme.CA()
    ca, own = tmp_path / "ca.pem", tmp_path / "own.pem"
    authority.cert_pem.write_to_path(ca)
    authority.issue_cert("a.example").private_key_and_cert_chain_pem.write_to_path(own)
    options = security_options(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": SCRAM,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(ca),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(own),
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert ("SCRAM-SHA-512", "a", "p", True) == tuple(
        options[f"sasl_{name}"] for name in ("mechanism", "plain_username", "plain_password", "delegation_token")
    )
    assert not options["ssl_context"].check_hostname
    security = configured(ClientConfig, "test", options).security
    assert security is not None
    assert (SecurityProtocol.SASL_SSL, options["ssl_context"]) == (security.security_protocol, security.ssl_context)
    assert security.sasl is not None
    assert security.sasl().name == "SCRAM-SHA-512"
    assert "'p'" not in repr(configured(ClientConfig, "test", options))


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.mechanism is not set"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}, "GSSAPI is not supported"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config: set it"),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": SCRAM},
            "is not the login module of PLAIN",
        ),
        ({"sasl.jaas.config": PLAIN}, "does not log in"),
        ({"ssl.truststore.location": "x"}, "does not encrypt"),
        ({"ssl.trustore.location": "x"}, "did you mean ssl.truststore.location"),
        ({"sasl.mechanisms": "PLAIN"}, "did you mean sasl.mechanism"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/none"}, "cannot read /none"),
    ],
)
def test_mistakes_are_refused(properties: dict[str, str], words: str) -> None:
    with pytest.raises(MisuseError, match=words):
        security_options(properties)


def test_unknown_protocol_is_refused() -> None:
    with pytest.raises(MisuseError, match="use one of PLAINTEXT, SSL"):
        _ = configured(ClientConfig, "test", security_options({"security.protocol": "TLS"})).security


class TestTokens:
    def options(self, jaas: str = "", **more: str) -> dict[str, object]:
        named = {name.replace("_", "."): value for name, value in more.items()}
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
        return security_options({**login, "sasl.jaas.config": OAUTH.format(jaas), **named})

    def test_file(self, tmp_path: Path) -> None:
        path = tmp_path / "token"
        path.write_text("abc.def.ghi\n")
        provider = self.options(sasl_oauthbearer_token_endpoint_url=path.as_uri())["sasl_oauth_token_provider"]
        assert callable(provider)
        assert provider() == "abc.def.ghi"
        path.write_text("newer")
        assert provider() == "newer"

    def test_unsecured(self) -> None:
        provider = self.options('unsecuredLoginStringClaim_sub="alice"')["sasl_oauth_token_provider"]
        assert callable(provider)
        assert provider().endswith(".")

    def test_endpoint_needs_credentials(self) -> None:
        with pytest.raises(MisuseError, match=r"client\.secret"):
            self.options(sasl_oauthbearer_token_endpoint_url="https://id.example/token")

    def test_nothing_given(self) -> None:
        with pytest.raises(MisuseError, match="OAUTHBEARER needs"):
            self.options()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sasl_mechanism": "PLAIN"}, "does not log in"),
        ({"ssl_cafile": "x"}, "does not encrypt"),
        ({"security_protocol": "SSL", "ssl_cafile": "/none"}, "cannot read /none"),
        ({"security_protocol": "SASL_PLAINTEXT"}, "needs sasl_mechanism"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}, "sasl_plain_username"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}, "token provider"),
        ({"security_protocol": "nonsense"}, "use one of"),
    ],
)
def test_mistakes_in_options_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(MisuseError, match=words):
        _ = configured(ClientConfig, "test", options).security


def test_secrets_are_not_shown() -> None:
    with pytest.raises(MisuseError) as caught:
        configured(ClientConfig, "test", {"sasl_plain_password": 12345})
    assert "12345" not in str(caught.value)


def test_token_providers_as_kafka_python_has_them() -> None:
    class Provider:
        def token(self) -> str:
            return "abc"

    async def later() -> str:
        return "abc"

    for provider in (Provider(), later, lambda: "abc"):
        config = configured(
            ClientConfig,
            "test",
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauth_token_provider": provider,
            },
        )
        assert config.security is not None
        assert config.security.sasl is not None
        mechanism = config.security.sasl()
        asyncio.run(mechanism.prepare())
        assert b"auth=Bearer abc" in mechanism.first()
