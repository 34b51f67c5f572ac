"""How a client logs in at a schema registry, in a file with Kafka's client properties: names that Confluent's clients
have.

    schema.registry.ssl.truststore.type=PEM
    schema.registry.ssl.truststore.location=secrets/ca.pem
    basic.auth.user.info=alice:secret

`basic.auth.credentials.source=SASL_INHERIT` takes the user and the password of `sasl.jaas.config` instead. Every name
may have the prefix `schema.registry.`. Brokers are `ottla.client.properties`'.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from ottla.model.errors import InvalidConfigError, MisuseError
from ottla.security.jaas import parse_jaas
from ottla.transport.tls_context import TlsSettings, client_context, load_material

PREFIX: Final = "schema.registry."
_TLS: Final = f"{PREFIX}ssl."
_ADVICE: Final = (
    (("Hostname mismatch", "IP address mismatch"), "connect by a name that is in the registry's certificate"),
    (
        ("CERTIFICATE_VERIFY_FAILED",),
        "trust the authority of the registry's certificate: OTTLA_REGISTRY_CA, or"
        " schema.registry.ssl.truststore.location in the client properties; schemaRegistryCa in Spark; tls in Python",
    ),
    (
        ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"),
        "the registry does not use TLS at this address; write its URL with http://",
    ),
    (("Server disconnected",), "if the registry uses TLS, write its URL with https://"),
)
_SOURCES: Final = ("URL", "USER_INFO", "SASL_INHERIT")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryLogin:
    """User, password or token, and what is trusted. Empty if the properties name nothing of it."""

    user: str | None = None
    password: str = field(default="", repr=False)
    token: str | None = field(default=None, repr=False)
    tls: Mapping[str, str] = field(default_factory=dict, repr=False)
    """`ssl.truststore.location` and so on, without the prefix."""

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self:
        """What the properties say of a registry. Raises `MisuseError`, never with a secret."""

        def named(name: str) -> str | None:
            value = properties.get(PREFIX + name, properties.get(name))
            return value.strip() if value is not None and value.strip() else None

        info, token = named("basic.auth.user.info"), named("bearer.auth.token")
        source = (named("basic.auth.credentials.source") or ("URL" if info is None else "USER_INFO")).upper()
        if source not in _SOURCES:
            raise MisuseError(f"basic.auth.credentials.source={source} is not one of {', '.join(_SOURCES)}")
        user, password = None, ""
        if source == "USER_INFO":
            user, separator, password = (info or "").partition(":")
            if not user or not separator:
                raise MisuseError("basic.auth.user.info must be USER:PASSWORD")
        elif source == "SASL_INHERIT":
            user, password = _inherited(properties)
        if user is not None and token is not None:
            raise MisuseError("set either basic.auth.user.info or bearer.auth.token, not both")
        tls = {name.removeprefix(PREFIX): value for name, value in properties.items() if name.startswith(_TLS)}
        return cls(user=user, password=password, token=token, tls=tls)

    @property
    def context(self) -> ssl.SSLContext | None:
        """What is trusted; None for what the system trusts. Reads files. Raises `MisuseError`."""
        if not self.tls:
            return None
        try:
            settings = TlsSettings.parse(self.tls, prefix=PREFIX)
            return client_context(settings, load_material(settings))
        except InvalidConfigError as error:
            raise MisuseError(str(error)) from None

    @property
    def options(self) -> dict[str, Any]:
        """The options of a `RegistryClient`. Reads files. Raises `MisuseError`."""
        found = {
            "auth": None if self.user is None else (self.user, self.password),
            "token": self.token,
            "tls": self.context,
        }
        return {name: value for name, value in found.items() if value is not None}


def _inherited(properties: Mapping[str, str]) -> tuple[str, str]:
    try:
        jaas = parse_jaas(properties.get("sasl.jaas.config", ""))
    except InvalidConfigError as error:
        raise MisuseError(f"basic.auth.credentials.source=SASL_INHERIT: sasl.jaas.config: {error}") from None
    if not jaas.username or not jaas.password:
        raise MisuseError(
            "basic.auth.credentials.source=SASL_INHERIT needs a user name and a password in sasl.jaas.config"
        )
    return jaas.username, jaas.password


def tls_advice(error: Exception) -> str | None:
    """What to do about a TLS handshake with a registry that failed; None for other errors."""
    words = str(error)
    return next((advice for signs, advice in _ADVICE if any(each in words for each in signs)), None)
