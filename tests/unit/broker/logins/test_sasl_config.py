"""The SASL configs of listeners: what is missing or would let anyone in is refused at the start, all at once."""

import pytest

from ottla.broker.configs.configuration import BrokerConfig
from ottla.broker.configs.sasl_config import UNSECURED_VALIDATOR, SaslConfig, sasl_config
from ottla.model.errors import InvalidConfigError
from tests.unit.broker.logins.secured import PLAIN_JAAS

LISTENER = {"listeners": "IN://127.0.0.1:0", "listener.security.protocol.map": "IN:SASL_PLAINTEXT"}
TOKENS = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "https://issuer.example/jwks",
    "sasl.oauthbearer.expected.audience": "kafka",
    "sasl.oauthbearer.expected.issuer": "https://issuer.example",
}
HANDLER = "listener.name.in.oauthbearer.sasl.server.callback.handler.class"


def parsed(settings: dict[str, str]) -> SaslConfig:
    return sasl_config(BrokerConfig.parse(settings={**LISTENER, **settings}).values, "IN")


def refusal(settings: dict[str, str]) -> str:
    with pytest.raises(InvalidConfigError) as error:
        BrokerConfig.parse(settings={**LISTENER, **settings})
    return str(error.value)


def test_the_closest_config_counts() -> None:
    found = parsed(
        {
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.in.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.in.plain.sasl.jaas.config": PLAIN_JAAS,
            "connections.max.reauth.ms": "1000",
            "listener.name.in.plain.connections.max.reauth.ms": "2000",
            "connection.failed.authentication.delay.ms": "7",
            "sasl.server.max.receive.size": "99",
        }
    )

    assert ("PLAIN", "SCRAM-SHA-512") == found.mechanisms
    assert {"alice", "bob"} == set(found.passwords)
    assert {"PLAIN": 2000, "SCRAM-SHA-512": 1000} == found.reauthentication_ms_max
    assert (7, 99) == (found.failure_delay_ms, found.frame_bytes_max)
    assert "wonder" not in repr(found)


def test_tokens_are_checked_with_keys_audience_and_issuer() -> None:
    found = parsed(TOKENS)

    assert not found.accepts_unsecured_tokens
    assert found.jwks is not None
    assert ("https://issuer.example/jwks", ("kafka",), "https://issuer.example", 30) == (
        found.jwks.url,
        found.token_rules.audiences,
        found.token_rules.issuer,
        found.token_rules.clock_skew_seconds,
    )


def test_tokens_are_checked_by_the_configs_of_their_mechanism() -> None:
    """As in Kafka, those with the prefix of listener and mechanism count before all others."""
    own = {
        "jwks.endpoint.url": "https://own.example/jwks",
        "jwks.endpoint.refresh.ms": "5000",
        "expected.audience": "own",
        "expected.issuer": "https://own.example",
        "clock.skew.seconds": "3",
        "sub.claim.name": "name",
    }
    prefixed = {f"listener.name.in.oauthbearer.sasl.oauthbearer.{name}": value for name, value in own.items()}
    mechanism = {"sasl.enabled.mechanisms": "OAUTHBEARER"}
    for found in (parsed(mechanism | prefixed), parsed(TOKENS | prefixed)):
        assert found.jwks is not None
        assert ("https://own.example/jwks", 5000) == (found.jwks.url, found.jwks.refresh_ms)
        rules = found.token_rules
        assert (("own",), "https://own.example", 3, "name") == (
            rules.audiences,
            rules.issuer,
            rules.clock_skew_seconds,
            rules.name_claim,
        )


@pytest.mark.parametrize(
    ("missing", "complaint"),
    [
        ("sasl.oauthbearer.jwks.endpoint.url", "jwks.endpoint.url is not set"),
        ("sasl.oauthbearer.expected.audience", "expected.audience is not set"),
        ("sasl.oauthbearer.expected.issuer", "expected.issuer is not set"),
    ],
)
def test_oauthbearer_does_not_start_without_what_it_checks(missing: str, complaint: str) -> None:
    assert complaint in refusal({name: value for name, value in TOKENS.items() if name != missing})


def test_an_unverified_audience_must_be_asked_for() -> None:
    settings = {name: value for name, value in TOKENS.items() if "expected" not in name}
    allowed = {f"sasl.oauthbearer.allow.unverified.{what}": "true" for what in ("audience", "issuer")}

    assert ((), None) == (
        (rules := parsed({**settings, **allowed}).token_rules).audiences,
        rules.issuer,
    )


def test_unsecured_tokens_must_be_asked_for_by_the_whole_class_name() -> None:
    settings = {"sasl.enabled.mechanisms": "OAUTHBEARER"}

    assert parsed({**settings, HANDLER: UNSECURED_VALIDATOR}).accepts_unsecured_tokens
    assert "not supported" in refusal({**settings, HANDLER: "com.example.AcceptAll"})
    assert "jwks.endpoint.url is not set" in refusal(settings)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({}, "sasl.enabled.mechanisms is not set"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "must be any of PLAIN"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "PLAIN without users"),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "listener.name.in.plain.sasl.jaas.config": "hunter2"},
            "a JAAS configuration is",
        ),
        (
            {
                "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                "listener.name.in.scram-sha-256.sasl.jaas.config": PLAIN_JAAS,
            },
            "is not the login module of SCRAM-SHA-256",
        ),
    ],
)
def test_what_is_refused(settings: dict[str, str], complaint: str) -> None:
    message = refusal(settings)

    assert complaint in message
    assert "hunter2" not in message
    assert "wonder" not in message


def test_a_config_without_prefix_is_used_by_its_own_mechanism_only() -> None:
    found = parsed({"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256", "sasl.jaas.config": PLAIN_JAAS})

    assert {"alice", "bob"} == set(found.passwords)
