"""How this broker logs in at other brokers, from its configs: a password with PLAIN or SCRAM, a token with OAUTHBEARER.

A token comes from a file, from a token endpoint (`kept_tokens.py`), or has no signature, if the broker is explicitly
configured so. The configs are Kafka's; they are read once, at the start.
"""

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from ottla.broker.configs.configuration import BrokerConfig
from ottla.env.ports import Clock
from ottla.metadata.configs.listener_overrides import override_name
from ottla.model.errors import InvalidConfigError, InvalidRequestError, MisuseError
from ottla.security.jaas import MODULES, JaasModule, parse_jaas
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.security.sasl.client import ClientMechanism
from ottla.transport.client_security import sasl_login

if TYPE_CHECKING:
    from ottla.client.oauth_tokens import ClientCredentials
    from ottla.security.sasl.oauthbearer_client import TokenProvider

UNSECURED_LOGIN: Final = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
)
_SECURED_LOGINS: Final = frozenset(
    {
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
    }
)
_JAAS: Final = "sasl.jaas.config"
_HANDLER: Final = "sasl.login.callback.handler.class"
_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_TOKEN_CONFIGS: Final = (
    _URL,
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.scope",
)


class InterBrokerLogin(NamedTuple):
    """Logins at other brokers."""

    make: Callable[[], ClientMechanism]
    """Makes the mechanism of one login."""
    renew_forever: Callable[[], Coroutine[None, None, None]] | None = None
    """What must run as long as the broker does; None if nothing must."""


def inter_broker_login(config: BrokerConfig, listener: str, clock: Clock) -> InterBrokerLogin:
    """The logins of this broker at the inter-broker listener of others. Raises `AuthenticationError`."""
    mechanism = config.values.get("sasl.mechanism.inter.broker.protocol")
    if not isinstance(mechanism, str) or not mechanism:
        raise AuthenticationError(
            f"the inter-broker listener {listener} uses SASL: set sasl.mechanism.inter.broker.protocol to the mechanism"
            " of this broker's logins to others"
        )
    try:
        if mechanism == "OAUTHBEARER":
            return _token_login(config, listener, clock)
        return _password_login(config, listener, mechanism)
    except (InvalidConfigError, MisuseError) as error:
        raise AuthenticationError(f"listener {listener}, logins to other brokers: {error}") from None


def _password_login(config: BrokerConfig, listener: str, mechanism: str) -> InterBrokerLogin:
    name = override_name(listener, _JAAS, mechanism)
    text = config.for_listener(listener, _JAAS, mechanism=mechanism)
    if not isinstance(text, str):
        raise MisuseError(f"{name}: set it, with the username and password of this broker's logins to others")
    jaas = parse_jaas(text)
    make = sasl_login(
        mechanism,
        username=jaas.username,
        password=jaas.password,
        is_token=jaas.options.get("tokenauth", "").lower() == "true",
    )
    return InterBrokerLogin(make)


def _token_login(config: BrokerConfig, listener: str, clock: Clock) -> InterBrokerLogin:
    # Imported only where it is needed, as the HTTP client is.
    from ottla.client.oauth_tokens import UNSECURED_SUBJECT, ClientCredentials, read_token, unsecured_token

    def value(name: str) -> str:
        found = config.for_listener(listener, name, mechanism="OAUTHBEARER")
        return found.strip() if isinstance(found, str) else ""

    options = _jaas_options(config, listener)
    handler, url = value(_HANDLER), value(_URL)
    if handler == UNSECURED_LOGIN:
        subject = options.get(UNSECURED_SUBJECT)
        if not subject:
            raise MisuseError(f"{override_name(listener, _JAAS, 'OAUTHBEARER')}: set {UNSECURED_SUBJECT} to the user")
        return _with_provider(partial(unsecured_token, subject))
    if handler and handler not in _SECURED_LOGINS:
        raise MisuseError(f"{override_name(listener, _HANDLER, 'OAUTHBEARER')}: {handler} is not supported")
    if not url:
        raise MisuseError(f"{_URL}: set it to the https: URL of a token endpoint, or the file: URL of a file")

    from ottla.transport.identity_provider import check_url

    listed = config.values["org.apache.kafka.sasl.oauthbearer.allowed.urls"]
    allowed = listed if isinstance(listed, tuple) else ()
    check_url(_URL, url, allowed)
    if urlsplit(url).scheme == "file":
        return _with_provider(partial(read_token, Path(unquote(urlsplit(url).path))))
    credentials = ClientCredentials.parse({name: value(name) for name in _TOKEN_CONFIGS}, options)

    from ottla.broker.logins.kept_tokens import KeptTokens

    tokens = KeptTokens(partial(_ask, credentials, allowed), clock)
    return InterBrokerLogin(_with_provider(tokens.token).make, tokens.renew_forever)


def _with_provider(provider: "TokenProvider") -> InterBrokerLogin:
    return InterBrokerLogin(sasl_login("OAUTHBEARER", token_provider=provider))


def _jaas_options(config: BrokerConfig, listener: str) -> Mapping[str, str]:
    """The options of OAUTHBEARER's login module; none if only another mechanism has one."""
    text = config.for_listener(listener, _JAAS, mechanism="OAUTHBEARER")
    jaas = parse_jaas(text) if isinstance(text, str) else JaasModule("", {})
    return jaas.options if jaas.module == MODULES["OAUTHBEARER"] else {}


async def _ask(credentials: "ClientCredentials", allowed_urls: tuple[str, ...]) -> str:
    from ottla.client.oauth_tokens import RESPONSE_BYTES_MAX
    from ottla.transport.identity_provider import fetch

    try:
        content = await fetch(
            credentials.url,
            allowed_urls,
            bytes_max=RESPONSE_BYTES_MAX,
            headers=credentials.headers,
            form=credentials.form,
        )
    except (InvalidRequestError, OSError) as error:
        raise AuthenticationError(f"the token endpoint at {credentials.where} cannot be used: {error}") from None
    return credentials.token_in(content)
