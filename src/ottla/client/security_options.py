"""What a client's security options mean: kafka-python's argument names, made into the `ClientSecurity` of connections.

Kafka's own names of these options, in files such as `client.properties`, are in `properties.py`.
"""

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ottla.model.errors import MisuseError
from ottla.security.security_protocol import SecurityProtocol
from ottla.transport.client_security import ClientSecurity, sasl_login

if TYPE_CHECKING:
    from ottla.client.options import ClientConfig

_NO_KEY: Final = "NO_START_LINE"


def security_of(config: "ClientConfig") -> ClientSecurity | None:
    """How the connections of a client are encrypted and log in; None for PLAINTEXT. Raises `MisuseError`."""
    if config.security_properties:
        from ottla.client.properties import security_options

        config = replace(config, security_properties=(), **security_options(dict(config.security_properties)))
    protocol = _protocol(config.security_protocol)
    _refuse_useless(config, protocol)
    if protocol is SecurityProtocol.PLAINTEXT:
        return None
    sasl = None
    if protocol.has_login:
        if config.sasl_mechanism is None:
            raise MisuseError(f"security_protocol={protocol} needs sasl_mechanism, such as SCRAM-SHA-512")
        sasl = sasl_login(
            config.sasl_mechanism.upper(),
            username=config.sasl_plain_username,
            password=config.sasl_plain_password,
            is_token=config.sasl_delegation_token,
            token_provider=_token_provider(config.sasl_oauth_token_provider),
        )
    return ClientSecurity(
        security_protocol=protocol, ssl_context=_ssl_context(config) if protocol.is_encrypted else None, sasl=sasl
    )


def _protocol(text: str) -> SecurityProtocol:
    if text.upper() not in list(SecurityProtocol):
        raise MisuseError(f"security_protocol={text!r} does not exist; use one of {', '.join(SecurityProtocol)}")
    return SecurityProtocol(text.upper())


def _refuse_useless(config: "ClientConfig", protocol: SecurityProtocol) -> None:
    """Options without an effect are refused: a client that was meant to be secure must not connect without."""
    if not protocol.has_login and config.sasl_mechanism is not None:
        raise MisuseError(
            f"sasl_mechanism is set, but security_protocol={protocol} does not log in; use SASL_SSL or SASL_PLAINTEXT"
        )
    given = [name for name in ("ssl_context", "ssl_cafile", "ssl_certfile") if getattr(config, name) is not None]
    if not protocol.is_encrypted and given:
        raise MisuseError(f"{given[0]} is set, but security_protocol={protocol} does not encrypt; use SSL or SASL_SSL")


def _ssl_context(config: "ClientConfig") -> ssl.SSLContext:
    if config.ssl_context is not None:
        return config.ssl_context
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = config.ssl_check_hostname
    context.verify_mode = ssl.CERT_REQUIRED
    if config.ssl_cafile is None:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(config.ssl_cafile)
        except ssl.SSLError as error:
            raise MisuseError(f"ssl_cafile: {config.ssl_cafile} has no certificate as PEM ({_reason(error)})") from None
        except OSError as error:
            raise MisuseError(f"ssl_cafile: cannot read {config.ssl_cafile}: {error.strerror}") from None
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if config.ssl_certfile is not None:
        _load_certificate(context, config.ssl_certfile, config.ssl_keyfile, config.ssl_password)
    if config.ssl_ciphers is not None:
        try:
            context.set_ciphers(config.ssl_ciphers)
        except ssl.SSLError:
            raise MisuseError(f"ssl_ciphers={config.ssl_ciphers!r} has no cipher that OpenSSL supports") from None
    return context


def _load_certificate(context: ssl.SSLContext, certificate: str, key: str | None, password: str | None) -> None:
    try:
        # Without a password, a function: OpenSSL would ask on the terminal otherwise.
        context.load_cert_chain(certificate, key, password if password is not None else lambda: "")
    except ssl.SSLError as error:
        if key is None and _NO_KEY in str(error):
            what = f"{certificate} has no private key; set ssl_keyfile"
        elif "KEY_VALUES_MISMATCH" in str(error):
            what = f"the private key in {key or certificate} is not that of the certificate in {certificate}"
        elif "BAD_DECRYPT" in str(error).upper() or "BAD DECRYPT" in str(error).upper() or "PASSWORD" in str(error):
            what = f"ssl_password does not decrypt the private key in {key or certificate}"
        else:
            what = f"{certificate}, {key}: {_reason(error)}"
        raise MisuseError(f"ssl_certfile: {what}") from None
    except OSError as error:
        named = certificate if key is None else f"{certificate} or {key}"
        raise MisuseError(f"ssl_certfile: cannot read {named}: {error.strerror}") from None


def _token_provider(given: Any) -> Callable[[], str | Awaitable[str]] | None:
    """A function as it is; of an object as kafka-python has it, its `token`."""
    method = getattr(given, "token", None)
    provider: Callable[[], str | Awaitable[str]] | None = method if callable(method) else given
    if provider is not None and not callable(provider):
        raise MisuseError("sasl_oauth_token_provider must be a function, or an object with a method token()")
    return provider


def _reason(error: ssl.SSLError) -> str:
    return str(error.reason or error).replace("_", " ").lower()
