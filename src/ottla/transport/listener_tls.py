"""The TLS of one listener: its certificates, and when they are replaced without a restart.

They are replaced when the files change (`reload_if_changed`, to be called now and then) and when the configs do
(`replace`). What replaces them is checked first, by Kafka's rules; if it is refused, the old certificates stay. Open
connections keep what they have.
"""

import logging
import os
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from ottla.model.errors import InvalidConfigError
from ottla.security.distinguished_name import MalformedNameError, subject_of
from ottla.security.principal_mapping import WHOLE_NAME, PrincipalMapping
from ottla.security.principals import ANONYMOUS, Principal
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.transport.kernel_tls import ENABLE_KERNEL_TLS
from ottla.transport.tls_context import TlsMaterial, TlsSettings, client_context, listener_context, load_material

_LOGGER: Final = logging.getLogger(__name__)
_STEPS_MAX: Final = 20
"""A handshake in memory takes three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerTlsSettings:
    """The TLS configs of a listener that may change while it is open."""

    tls: TlsSettings
    mapping: PrincipalMapping = WHOLE_NAME
    allows_dn_changes: bool = False
    allows_san_changes: bool = False


class ListenerTls:
    """The certificates of one listener. Raises `InvalidConfigError` if they cannot be loaded.

    `context` is for connections that it accepts, `client_context` for those of this broker to the same listener of
    others, if brokers use it among themselves.
    """

    def __init__(self, name: str, settings: ListenerTlsSettings, *, is_inter_broker: bool = False) -> None:
        self.name: Final = name
        self._is_inter_broker = is_inter_broker
        self._settings = settings
        self._seen = self._files = _files_of(settings.tls)
        self._material = load_material(settings.tls)
        self._context = listener_context(settings.tls, self._material)
        self._client_context = client_context(settings.tls, self._material)
        self._complaint: str | None = None
        if self._context.options & ENABLE_KERNEL_TLS:
            _LOGGER.info("listener %s: kernel TLS enabled for sent data", name)
        if is_inter_broker:
            _check_handshake(self._context, self._client_context, "this broker does not trust its own certificate")
        elif expired_at := _expired_at(self._material.chain[0]):
            _LOGGER.error(
                "listener %s: its certificate expired at %s; clients that check certificates cannot connect",
                name,
                expired_at,
            )

    @property
    def context(self) -> ssl.SSLContext:
        """For connections that the listener accepts from now on."""
        return self._context

    @property
    def client_context(self) -> ssl.SSLContext:
        """For connections to other brokers."""
        return self._client_context

    def principal_of(self, certificate: bytes | None) -> Principal:
        """The principal of a client with this certificate; ANONYMOUS without one. Raises `AuthenticationError`."""
        if certificate is None:
            return ANONYMOUS
        try:
            return self._settings.mapping.principal_of(subject_of(certificate))
        except MalformedNameError as error:
            raise AuthenticationError(f"the client's certificate: {error}") from None

    def check(self, settings: ListenerTlsSettings) -> None:
        """Raises `InvalidConfigError` if these settings could not replace the present ones."""
        if settings != self._settings:
            self._load(settings)

    def replace(self, settings: ListenerTlsSettings) -> None:
        """Takes other settings, for new connections. Raises `InvalidConfigError` and changes nothing if it cannot."""
        if settings != self._settings:
            self._take(settings)

    def reload_if_changed(self) -> bool:
        """Reads the files again if they changed since they were read, and not since the last call: a file that is
        being written is not read. Whether new certificates are in use. A failure is logged once."""
        files = _files_of(self._settings.tls)
        is_stable, self._seen = files == self._seen, files
        if files == self._files or not is_stable:
            return False
        try:
            self._take(self._settings)
        except InvalidConfigError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                _LOGGER.error(
                    "listener %s: cannot use the changed certificates, keeping the old ones: %s",
                    self.name,
                    error,
                )
            return False
        return True

    def _take(self, settings: ListenerTlsSettings) -> None:
        files = _files_of(settings.tls)
        self._material, self._context, self._client_context = self._load(settings)
        self._settings, self._seen, self._files, self._complaint = settings, files, files, None
        _LOGGER.info("listener %s: loaded new certificates; new connections use them", self.name)

    def _load(self, settings: ListenerTlsSettings) -> tuple[TlsMaterial, ssl.SSLContext, ssl.SSLContext]:
        material = load_material(settings.tls)
        old, prefix = self._material, settings.tls.keystore.config.removesuffix("ssl.keystore")
        if material.key is None:
            raise InvalidConfigError(f"{prefix}ssl.keystore: the keystore of an open listener cannot be removed")
        if old.trusted is None and material.trusted is not None:
            raise InvalidConfigError(f"{prefix}ssl.truststore: an open listener without a truststore cannot get one")
        if material.chain[:1] != old.chain[:1]:
            _check_names(prefix, settings, old.chain[0], material.chain[0])
        context, client = listener_context(settings.tls, material), client_context(settings.tls, material)
        if expired_at := _expired_at(material.chain[0]):
            raise InvalidConfigError(f"{prefix}ssl.keystore: the new certificate expired at {expired_at}")
        if self._is_inter_broker:
            _check_handshake(context, client, f"{prefix}ssl: the inter-broker listener would not trust itself")
            if not _expired_at(old.chain[0]):
                # While brokers change one after the other, old and new certificates must work together. One that has
                # expired works with nothing, so that only the new one counts.
                what = f"{prefix}ssl: old and new certificates of the inter-broker listener do not trust each other"
                _check_handshake(context, self._client_context, what)
                _check_handshake(self._context, client, what)
        return material, context, client


def _expired_at(pem: str) -> datetime | None:
    """When a certificate expired; None if it has not, or cannot be read, which OpenSSL decides."""
    from cryptography.x509 import load_pem_x509_certificate

    try:
        end = load_pem_x509_certificate(pem.encode()).not_valid_after_utc
    except ValueError:
        return None
    return end if end <= datetime.now(UTC) else None


def _check_names(prefix: str, settings: ListenerTlsSettings, old_pem: str, new_pem: str) -> None:
    from cryptography.x509 import (
        Certificate,
        ExtensionNotFound,
        GeneralName,
        SubjectAlternativeName,
        load_pem_x509_certificate,
    )

    def names_of(certificate: Certificate) -> set[GeneralName]:
        try:
            return set(certificate.extensions.get_extension_for_class(SubjectAlternativeName).value)
        except ExtensionNotFound:
            return set()

    try:
        old, new = load_pem_x509_certificate(old_pem.encode()), load_pem_x509_certificate(new_pem.encode())
        missing = names_of(old) - names_of(new)
    except ValueError as error:
        raise InvalidConfigError(f"{prefix}ssl.keystore: the certificate cannot be read: {error}") from None
    if not settings.allows_dn_changes and old.subject != new.subject:
        raise InvalidConfigError(
            f"{prefix}ssl.keystore: the new certificate is for {new.subject.rfc4514_string()!r}, the present one for"
            f" {old.subject.rfc4514_string()!r}; set ssl.allow.dn.changes=true if this is intended"
        )
    if not settings.allows_san_changes and missing:
        listed = ", ".join(sorted(str(getattr(each, "value", each)) for each in missing))
        raise InvalidConfigError(
            f"{prefix}ssl.keystore: the new certificate lacks names of the present one: {listed}; set"
            " ssl.allow.san.changes=true if this is intended"
        )


def _check_handshake(server: ssl.SSLContext, client: ssl.SSLContext, complaint: str) -> None:
    """A handshake in memory. Host names are not compared: which ones other brokers use is not known here."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    checks_host, client.check_hostname = client.check_hostname, False
    try:
        server_side = server.wrap_bio(to_server, to_client, server_side=True)
        client_side = client.wrap_bio(to_client, to_server)
    finally:
        client.check_hostname = checks_host
    open_sides = [client_side, server_side]
    for _ in range(_STEPS_MAX):
        for side in list(open_sides):
            try:
                side.do_handshake()
                open_sides.remove(side)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                why = getattr(error, "verify_message", None) or str(error.reason or error).replace("_", " ").lower()
                raise InvalidConfigError(f"{complaint}: {why}; check keystore and truststore") from None
        if not open_sides:
            return
    raise InvalidConfigError(f"{complaint}: the handshake was never completed")


def _files_of(settings: TlsSettings) -> tuple[object, ...]:
    """What changes when a file of the settings is written or replaced."""
    found: list[object] = []
    for store in (settings.keystore, settings.truststore):
        if store.location:
            try:
                state = os.stat(store.location)
                found.append((state.st_mtime_ns, state.st_size, state.st_ino))
            except OSError:
                found.append(None)
    return tuple(found)
