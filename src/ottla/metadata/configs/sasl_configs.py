"""The broker configs of SASL, with the names, types and defaults of Kafka 4.3.

Most of them can be set for one listener, or one mechanism of a listener (`listener_overrides.py`).
`ottla.broker.configs.sasl_config` knows what they mean.
"""

from typing import Final

from ottla.metadata.configs.definition import ConfigType
from ottla.metadata.configs.definition import define as _define

_STRING, _LIST, _BOOLEAN = ConfigType.STRING, ConfigType.LIST, ConfigType.BOOLEAN
_INT, _LONG, _PASSWORD, _CLASS = ConfigType.INT, ConfigType.LONG, ConfigType.PASSWORD, ConfigType.CLASS
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

SASL_CONFIGS: Final = (
    _define("sasl.enabled.mechanisms", _LIST, None,
            "The mechanisms that clients of listeners with SASL may use. There is no default: GSSAPI, Kafka's default,"
            " is not supported.", allowed=MECHANISMS),
    _define("sasl.mechanism.inter.broker.protocol", _STRING, None,
            "The mechanism for connections between brokers.", allowed=MECHANISMS),
    _define("sasl.jaas.config", _PASSWORD, None,
            "The login module and its options: the users of PLAIN, and this broker's credentials for other brokers. Set"
            " it as listener.name.<listener>.<mechanism>.sasl.jaas.config."),
    _define("sasl.server.max.receive.size", _INT, "524288",
            "The largest request in bytes that a client may send before it has logged in.", 1),
    _define("connection.failed.authentication.delay.ms", _INT, "100",
            "How long the response to a failed login is delayed.", 0),
    _define("connections.max.reauth.ms", _LONG, "0",
            "How long a session lasts before the client must re-authenticate; 0 for no limit."),
    _define("sasl.server.callback.handler.class", _CLASS, None,
            "For OAUTHBEARER only: OAuthBearerUnsecuredValidatorCallbackHandler of"
            " org.apache.kafka.common.security.oauthbearer.internals.unsecured makes the broker accept tokens without a"
            " signature, which anyone can write. Without it tokens are checked with the keys of"
            " sasl.oauthbearer.jwks.endpoint.url."),
    _define("sasl.login.callback.handler.class", _CLASS, None,
            "For OAUTHBEARER between brokers: OAuthBearerUnsecuredLoginCallbackHandler of"
            " org.apache.kafka.common.security.oauthbearer.internals.unsecured makes this broker log in at others with"
            " a token without a signature, for the user unsecuredLoginStringClaim_sub in sasl.jaas.config. Without it"
            " the token comes from sasl.oauthbearer.token.endpoint.url."),
    _define("sasl.oauthbearer.token.endpoint.url", _STRING, None,
            "Where this broker gets the token to log in to others: the https: URL of a token endpoint, http: only"
            " on this machine, or the file: URL of a file that something else renews."),
    _define("sasl.oauthbearer.client.credentials.client.id", _STRING, None,
            "The client id for the token endpoint. In older versions it is the option clientId of sasl.jaas.config."),
    _define("sasl.oauthbearer.client.credentials.client.secret", _PASSWORD, None,
            "The client secret for the token endpoint, or the option clientSecret of sasl.jaas.config."),
    _define("sasl.oauthbearer.scope", _STRING, None,
            "The scope that is requested from the token endpoint, or the option scope of sasl.jaas.config."),
    _define("sasl.oauthbearer.jwks.endpoint.url", _STRING, None,
            "The https: or file: URL of the keys for verifying tokens; http: only for this machine."),
    _define("sasl.oauthbearer.jwks.endpoint.refresh.ms", _LONG, "3600000", "How often the keys are fetched again.", 1),
    _define("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", _LONG, "100",
            "The first wait after the keys could not be fetched; it doubles with each attempt.", 1),
    _define("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", _LONG, "10000",
            "The longest wait after the keys could not be fetched.", 1),
    _define("sasl.oauthbearer.expected.audience", _LIST, "",
            "The accepted audiences (aud); a token must have one of them."),
    _define("sasl.oauthbearer.expected.issuer", _STRING, None, "The accepted issuer (iss) of tokens."),
    _define("sasl.oauthbearer.allow.unverified.audience", _BOOLEAN, "false",
            "Whether sasl.oauthbearer.expected.audience may be missing, so that tokens for any audience are accepted."),
    _define("sasl.oauthbearer.allow.unverified.issuer", _BOOLEAN, "false",
            "Whether sasl.oauthbearer.expected.issuer may be missing, so that tokens of any issuer are accepted."),
    _define("sasl.oauthbearer.clock.skew.seconds", _INT, "30",
            "By how much the clocks of the token's issuer and the broker may differ.", 0),
    _define("sasl.oauthbearer.sub.claim.name", _STRING, "sub", "The claim with the principal's name."),
    _define("sasl.oauthbearer.scope.claim.name", _STRING, "scope", "The claim with the token's scopes."),
    _define("org.apache.kafka.sasl.oauthbearer.allowed.urls", _LIST, "",
            "URLs of keys and tokens in private networks that the broker may fetch, separated by commas. In Kafka"
            " it is a system property."),
)  # fmt: skip
