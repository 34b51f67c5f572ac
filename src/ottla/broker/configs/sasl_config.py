"""What a listener with SASL accepts, from its configs. Pure.

The configs are Kafka's (`ottla.metadata.configs.sasl_configs`). Everything that would let clients in without a check is
refused here, at the start: a listener without mechanisms, OAUTHBEARER without keys, audience or issuer.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.metadata.configs.definition import ConfigValue
from ottla.metadata.configs.listener_overrides import override_name, value_for_listener
from ottla.model.errors import InvalidConfigError
from ottla.security.jaas import MODULES, JaasModule, parse_jaas
from ottla.security.sasl.jwt_validation import TokenRules

UNSECURED_VALIDATOR: Final = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
_SECURED_VALIDATORS: Final = frozenset(
    {
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
    }
)
_JAAS: Final = "sasl.jaas.config"
_HANDLER: Final = "sasl.server.callback.handler.class"
_OAUTH: Final = "sasl.oauthbearer."

Values = Mapping[str, ConfigValue | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class JwksConfig:
    """Where the keys for tokens are, and how often they are fetched."""

    url: str
    allowed_urls: tuple[str, ...] = ()
    refresh_ms: int = 3_600_000
    backoff_ms: int = 100
    backoff_ms_max: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslConfig:
    """The SASL configs of one listener."""

    mechanisms: tuple[str, ...]
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The users of PLAIN."""
    reauthentication_ms_max: Mapping[str, int]
    frame_bytes_max: int
    failure_delay_ms: int
    token_rules: TokenRules
    jwks: JwksConfig | None = None
    """None if tokens need no signature: only if `accepts_unsecured_tokens`, or without OAUTHBEARER."""
    accepts_unsecured_tokens: bool = False


def sasl_config(values: Values, listener: str) -> SaslConfig:
    """The SASL configs of a listener. Raises `InvalidConfigError` with a line for each problem."""
    complaints = list(sasl_errors(values, listener))
    if complaints:
        raise InvalidConfigError("\n".join(complaints))
    mechanisms = _mechanisms(values, listener)
    with_tokens = "OAUTHBEARER" in mechanisms
    is_unsecured = with_tokens and _handler(values, listener, "OAUTHBEARER") == UNSECURED_VALIDATOR
    plain = _module(values, listener, "PLAIN") if "PLAIN" in mechanisms else None
    return SaslConfig(
        mechanisms=mechanisms,
        passwords=plain.users if plain is not None else {},
        reauthentication_ms_max={
            each: _whole(value_for_listener(values, listener, "connections.max.reauth.ms", mechanism=each))
            for each in mechanisms
        },
        frame_bytes_max=_whole(value_for_listener(values, listener, "sasl.server.max.receive.size")),
        failure_delay_ms=_whole(values["connection.failed.authentication.delay.ms"]),
        token_rules=_token_rules(values, listener),
        jwks=_jwks(values, listener) if with_tokens and not is_unsecured else None,
        accepts_unsecured_tokens=is_unsecured,
    )


def sasl_errors(values: Values, listener: str) -> Iterator[str]:
    """What is wrong with the SASL configs of a listener, one message for each problem; never with a secret."""
    mechanisms = _mechanisms(values, listener)
    if not mechanisms:
        yield f"listener {listener} uses SASL, but sasl.enabled.mechanisms is not set; for example, set SCRAM-SHA-512"
    for mechanism in mechanisms:
        handler = _handler(values, listener, mechanism)
        is_known = mechanism == "OAUTHBEARER" and (handler == UNSECURED_VALIDATOR or handler in _SECURED_VALIDATORS)
        if handler is not None and not is_known:
            yield f"{override_name(listener, _HANDLER, mechanism)}: {handler} is not supported"
        try:
            module = _module(values, listener, mechanism)
        except InvalidConfigError as error:
            yield f"{override_name(listener, _JAAS, mechanism)}: {error}"
            continue
        if mechanism == "PLAIN" and (module is None or not module.users):
            yield (
                f"listener {listener} enables PLAIN without users; set {override_name(listener, _JAAS, mechanism)} to"
                f' {MODULES["PLAIN"]} required user_NAME="password";'
            )
        if mechanism == "OAUTHBEARER" and handler != UNSECURED_VALIDATOR:
            yield from _token_errors(values, listener)


def _token_errors(values: Values, listener: str) -> Iterator[str]:
    if not _for_tokens(values, listener, f"{_OAUTH}jwks.endpoint.url"):
        yield (
            f"listener {listener} enables OAUTHBEARER, but sasl.oauthbearer.jwks.endpoint.url is not set: tokens could"
            " not be checked"
        )
    for what in ("audience", "issuer"):
        is_missing = not _for_tokens(values, listener, f"{_OAUTH}expected.{what}")
        if is_missing and not _for_tokens(values, listener, f"{_OAUTH}allow.unverified.{what}"):
            yield (
                f"listener {listener} enables OAUTHBEARER, but sasl.oauthbearer.expected.{what} is not set; set it, or"
                f" set sasl.oauthbearer.allow.unverified.{what}=true to accept tokens of any {what}"
            )


def _mechanisms(values: Values, listener: str) -> tuple[str, ...]:
    found = value_for_listener(values, listener, "sasl.enabled.mechanisms")
    return found if isinstance(found, tuple) else ()


def _handler(values: Values, listener: str, mechanism: str) -> str | None:
    found = value_for_listener(values, listener, _HANDLER, mechanism=mechanism)
    return found if isinstance(found, str) and found else None


def _module(values: Values, listener: str, mechanism: str) -> JaasModule | None:
    """The login module of a mechanism; one without the mechanism's prefix counts only if it is of this mechanism."""
    own = values.get(override_name(listener, _JAAS, mechanism))
    text = own if own is not None else value_for_listener(values, listener, _JAAS)
    if not isinstance(text, str):
        return None
    module = parse_jaas(text)
    if module.module == MODULES[mechanism]:
        return module
    if own is not None:
        raise InvalidConfigError(f"{module.module} is not the login module of {mechanism}; use {MODULES[mechanism]}")
    return None


def _token_rules(values: Values, listener: str) -> TokenRules:
    audiences = _for_tokens(values, listener, f"{_OAUTH}expected.audience")
    issuer = _for_tokens(values, listener, f"{_OAUTH}expected.issuer")
    return TokenRules(
        audiences=audiences if isinstance(audiences, tuple) else (),
        issuer=issuer if isinstance(issuer, str) and issuer else None,
        clock_skew_seconds=_whole(_for_tokens(values, listener, f"{_OAUTH}clock.skew.seconds")),
        name_claim=str(_for_tokens(values, listener, f"{_OAUTH}sub.claim.name")),
        scope_claim=str(_for_tokens(values, listener, f"{_OAUTH}scope.claim.name")),
    )


def _jwks(values: Values, listener: str) -> JwksConfig:
    allowed = values["org.apache.kafka.sasl.oauthbearer.allowed.urls"]
    endpoint = f"{_OAUTH}jwks.endpoint."
    return JwksConfig(
        url=str(_for_tokens(values, listener, f"{endpoint}url")),
        allowed_urls=allowed if isinstance(allowed, tuple) else (),
        refresh_ms=_whole(_for_tokens(values, listener, f"{endpoint}refresh.ms")),
        backoff_ms=_whole(_for_tokens(values, listener, f"{endpoint}retry.backoff.ms")),
        backoff_ms_max=_whole(_for_tokens(values, listener, f"{endpoint}retry.backoff.max.ms")),
    )


def _for_tokens(values: Values, listener: str, name: str) -> ConfigValue | None:
    return value_for_listener(values, listener, name, mechanism="OAUTHBEARER")


def _whole(value: ConfigValue | None) -> int:
    return value if isinstance(value, int) else 0
