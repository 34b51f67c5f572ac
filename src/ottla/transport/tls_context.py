"""`ssl.SSLContext`s from Kafka's `ssl.*` configs: private keys, certificates, and what is trusted.

Keys and certificates come from files or from the text of a config, as PEM or PKCS12. `TlsSettings` is the parsed form
of the configs, `load_material` reads the files, and `listener_context` and `client_context` make a context of both.
When a listener's certificates are replaced is decided in `listener_tls.py`; whether the kernel encrypts its connections
is an option of its context (`kernel_tls.py`).
"""

import os
import re
import ssl
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.env.system_calls import has_kernel_tls
from ottla.model.errors import InvalidConfigError
from ottla.transport.kernel_tls import ENABLE_KERNEL_TLS, OPENSSL_HAS_KERNEL_TLS

_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.+?-----END \1-----", re.DOTALL)
_STORE_BYTES_MAX: Final = 16 * 1024 * 1024
_JKS_MAGICS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER_SEQUENCE: Final = b"\x30"
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_TLS13_SUITES: Final = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
_IANA: Final = re.compile(r"TLS_(?P<exchange>[A-Z0-9_]+)_WITH_(?P<cipher>[A-Z0-9_]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Where a keystore or truststore comes from: a file, or PEM text."""

    config: str
    """`ssl.keystore` or `ssl.truststore`, for messages; with a listener's prefix if it has one."""
    type: str = "JKS"
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    certificates: str | None = field(default=None, repr=False)
    """The certificate chain, or the certificates that are trusted, as PEM."""

    @property
    def is_set(self) -> bool:
        """Whether there is a store at all."""
        return bool(self.location or self.key or self.certificates)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The `ssl.*` configs of one listener or client, parsed."""

    keystore: StoreSettings = field(default_factory=lambda: StoreSettings(config="ssl.keystore"))
    truststore: StoreSettings = field(default_factory=lambda: StoreSettings(config="ssl.truststore"))
    client_auth: str = "none"
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    checks_host: bool = True
    """Whether a client compares the broker's name with its certificate."""
    permits_kernel_tls: bool = True
    """Whether the kernel may encrypt the connections of a listener."""

    @classmethod
    def parse(cls, configs: Mapping[str, object], *, prefix: str = "") -> "TlsSettings":
        """The settings in configs by their Kafka names, lists as tuples or as text with commas; `prefix` is for
        messages. Raises `InvalidConfigError`."""

        def text(name: str) -> str | None:
            value = configs.get(name)
            return str(value).strip() if value is not None and str(value).strip() else None

        def secret(name: str) -> str | None:
            value = configs.get(name)
            return str(value) if value is not None and str(value) else None

        def listed(name: str, default: tuple[str, ...]) -> tuple[str, ...]:
            value = configs.get(name)
            if value is None:
                return default
            given = value if isinstance(value, tuple | list) else str(value).split(",")
            return tuple(str(each).strip() for each in given if str(each).strip())

        algorithm = configs.get("ssl.endpoint.identification.algorithm")
        if algorithm is not None and str(algorithm).strip().lower() not in ("https", ""):
            raise InvalidConfigError(
                f"{prefix}ssl.endpoint.identification.algorithm={algorithm} is not allowed: it must be https, or empty"
                " for no check of host names"
            )
        protocols = listed("ssl.enabled.protocols", cls().protocols)
        unknown = [each for each in protocols if each not in _VERSIONS]
        if unknown or not protocols:
            raise InvalidConfigError(
                f"{prefix}ssl.enabled.protocols={','.join(protocols)} is not allowed: it must be any of"
                f" {', '.join(_VERSIONS)}"
            )
        client_auth = text("ssl.client.auth") or "none"
        if client_auth not in _CLIENT_AUTH:
            raise InvalidConfigError(
                f"{prefix}ssl.client.auth={client_auth} is not allowed: it must be one of {', '.join(_CLIENT_AUTH)}"
            )
        settings = cls(
            keystore=StoreSettings(
                config=f"{prefix}ssl.keystore",
                type=(text("ssl.keystore.type") or "JKS").upper(),
                location=text("ssl.keystore.location"),
                password=secret("ssl.keystore.password"),
                key_password=secret("ssl.key.password"),
                key=secret("ssl.keystore.key"),
                certificates=secret("ssl.keystore.certificate.chain"),
            ),
            truststore=StoreSettings(
                config=f"{prefix}ssl.truststore",
                type=(text("ssl.truststore.type") or "JKS").upper(),
                location=text("ssl.truststore.location"),
                password=secret("ssl.truststore.password"),
                certificates=secret("ssl.truststore.certificates"),
            ),
            client_auth=client_auth,
            protocols=protocols,
            cipher_suites=listed("ssl.cipher.suites", ()),
            checks_host=algorithm is None or bool(str(algorithm).strip()),
            permits_kernel_tls=bool(configs.get("ssl.kernel.tls.enable", True)),
        )
        _check_store(settings.keystore)
        _check_store(settings.truststore)
        return settings


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsMaterial:
    """Keys and certificates as PEM text, read from their stores."""

    key: str | None = field(default=None, repr=False)
    """The private key, not encrypted; None if there is no keystore."""
    chain: tuple[str, ...] = ()
    """The certificate of the key, then those of its issuers."""
    trusted: tuple[str, ...] | None = None
    """None if there is no truststore."""


def load_material(settings: TlsSettings) -> TlsMaterial:
    """Reads the stores. Raises `InvalidConfigError`, which names the config and says what to do."""
    key, chain = _load_keystore(settings.keystore) if settings.keystore.is_set else (None, ())
    trusted = _load_truststore(settings.truststore) if settings.truststore.is_set else None
    return TlsMaterial(key=key, chain=chain, trusted=trusted)


def listener_context(settings: TlsSettings, material: TlsMaterial) -> ssl.SSLContext:
    """The context of a listener. Raises `InvalidConfigError`."""
    config = settings.keystore.config
    if material.key is None:
        raise InvalidConfigError(no_keystore(config))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _apply(context, settings, material)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        if material.trusted is None:
            # As Java does without a truststore: whom the system trusts.
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        # Sessions that were resumed would keep the principal of a certificate that is not trusted any more.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_RENEGOTIATION
    if settings.permits_kernel_tls and OPENSSL_HAS_KERNEL_TLS and has_kernel_tls():
        context.options |= ENABLE_KERNEL_TLS
    return context


def no_keystore(config: str) -> str:
    """What to do about a listener without a keystore, whose configs begin with this."""
    return (
        f"a listener with TLS needs a private key and a certificate: set {config}.type=PEM and {config}.location (a"
        f" file with both), or {config}.key and {config}.certificate.chain"
    )


def client_context(settings: TlsSettings, material: TlsMaterial) -> ssl.SSLContext:
    """The context of a client; without a truststore, it uses the system's. Raises `InvalidConfigError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_host
    context.verify_mode = ssl.CERT_REQUIRED
    _apply(context, settings, material)
    if material.trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def openssl_cipher(name: str) -> str:
    """OpenSSL's name of a TLS 1.2 cipher suite, from IANA's, which Kafka uses. Other names stay as they are."""
    found = _IANA.fullmatch(name)
    if found is None:
        return name
    exchange, cipher = found["exchange"], found["cipher"]
    cipher = re.sub(r"AES_(128|256)_CBC_(SHA[0-9]*)", r"AES\1-\2", cipher)
    cipher = re.sub(r"AES_(128|256)_", r"AES\1-", cipher)
    cipher = (
        cipher.replace("CCM_8", "CCM8")
        .replace("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305")
        .replace("3DES_EDE_CBC", "DES-CBC3")
    )
    cipher = re.sub(r"(CAMELLIA|ARIA)_(128|256)_", r"\g<1>\2-", cipher).replace("_", "-")
    return cipher if exchange == "RSA" else f"{exchange.replace('_', '-')}-{cipher}"


def _apply(context: ssl.SSLContext, settings: TlsSettings, material: TlsMaterial) -> None:
    versions = [_VERSIONS[each] for each in settings.protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    _apply_ciphers(context, settings)
    if material.key is not None:
        with _as_file(f"{material.key}\n{_joined(material.chain)}") as path:
            try:
                context.load_cert_chain(path)
            except ssl.SSLError as error:
                why = _reason(error)
                if "key values mismatch" in why:
                    why = "the first certificate does not match the private key; put the broker's own certificate first"
                raise InvalidConfigError(f"{settings.keystore.config}: {why}") from None
    if material.trusted is not None:
        try:
            context.load_verify_locations(cadata=_joined(material.trusted))
        except ssl.SSLError as error:
            raise InvalidConfigError(f"{settings.truststore.config}: {_reason(error)}") from None
        # A certificate in the truststore is trusted even if it is not that of an authority, as in Java.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _apply_ciphers(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if not settings.cipher_suites:
        return
    older = [openssl_cipher(each) for each in settings.cipher_suites if each not in _TLS13_SUITES]
    if len(older) < len(settings.cipher_suites) and not older:
        # Python cannot choose among the suites of TLS 1.3; to allow only these means to refuse TLS 1.2.
        if "TLSv1.3" not in settings.protocols:
            raise InvalidConfigError(
                "ssl.cipher.suites has only suites of TLSv1.3, but ssl.enabled.protocols does not have TLSv1.3"
            )
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    if len(older) == len(settings.cipher_suites):
        # The other way round: all suites of TLS 1.3 would be allowed that the operator did not list.
        if "TLSv1.2" not in settings.protocols:
            raise InvalidConfigError(
                "ssl.cipher.suites has no suite of TLSv1.3, but ssl.enabled.protocols has only TLSv1.3"
            )
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.set_ciphers(":".join(older))
    except ssl.SSLError:
        raise InvalidConfigError(
            f"ssl.cipher.suites={','.join(settings.cipher_suites)} has no cipher suite that OpenSSL supports; use"
            " IANA's names, such as TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, or leave it empty"
        ) from None


# Stores


def _check_store(store: StoreSettings) -> None:
    """What can be seen without reading files."""
    if store.type not in ("PEM", "PKCS12", "JKS"):
        raise InvalidConfigError(f"{store.config}.type={store.type} is not allowed: it must be PEM or PKCS12")
    inline = "certificate.chain" if store.config.endswith("keystore") else "certificates"
    if store.key or store.certificates:
        if store.type != "PEM":
            raise InvalidConfigError(f"{store.config}.{inline} needs {store.config}.type=PEM, not {store.type}")
        if store.location:
            raise InvalidConfigError(f"set either {store.config}.location or {store.config}.{inline}, not both")
        if inline == "certificate.chain" and not (store.key and store.certificates):
            raise InvalidConfigError(f"{store.config}.key and {store.config}.certificate.chain must be set together")
    if store.type == "PEM" and store.password:
        raise InvalidConfigError(
            f"{store.config}.password has no meaning for PEM; the password of an encrypted private key is"
            f" {store.config.removesuffix('keystore').removesuffix('truststore')}key.password"
        )


def _read(store: StoreSettings) -> bytes:
    if not store.location:
        raise InvalidConfigError(f"{store.config}.type={store.type} needs {store.config}.location")
    try:
        with open(store.location, "rb") as file:
            content = file.read(_STORE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidConfigError(f"{store.config}.location: cannot read {store.location}: {error.strerror}") from None
    if len(content) > _STORE_BYTES_MAX:
        raise InvalidConfigError(f"{store.config}.location: {store.location} is larger than {_STORE_BYTES_MAX} bytes")
    if content.startswith(_JKS_MAGICS):
        raise InvalidConfigError(
            f"{store.config}.location: {store.location} is a JKS file, which only Java can read; convert it with"
            f" `keytool -importkeystore -srckeystore {store.location} -destkeystore store.p12 -deststoretype PKCS12`"
            f" and set {store.config}.type=PKCS12"
        )
    if store.type != "PEM" and not content.startswith(_DER_SEQUENCE):
        hint = f"; set {store.config}.type=PEM" if b"-----BEGIN " in content else ""
        raise InvalidConfigError(f"{store.config}.location: {store.location} is not a PKCS12 file{hint}")
    return content


def _load_keystore(store: StoreSettings) -> tuple[str, tuple[str, ...]]:
    if store.type == "PEM":
        text = f"{store.key}\n{store.certificates}" if store.key else _pem_text(store)
        keys = [each for each in _blocks(text) if each[0].endswith("PRIVATE KEY")]
        chain = tuple(block for kind, block in _blocks(text) if kind == "CERTIFICATE")
        if len(keys) != 1 or not chain:
            raise InvalidConfigError(
                f"{store.config}: expected one private key and its certificate chain as PEM, found {len(keys)} private"
                f" keys and {len(chain)} certificates"
            )
        return _decrypted(store, keys[0][1]), chain
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key, certificate, others = _pkcs12(store)
    if key is None or certificate is None:
        raise InvalidConfigError(f"{store.config}.location: {store.location} has no private key with a certificate")
    # Java writes the chain in its order; a certificate that belongs elsewhere does not harm.
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return pem, (certificate, *others)


def _load_truststore(store: StoreSettings) -> tuple[str, ...]:
    if store.type == "PEM":
        text = store.certificates or _pem_text(store)
        trusted = tuple(block for kind, block in _blocks(text) if kind in ("CERTIFICATE", "TRUSTED CERTIFICATE"))
    else:
        _, certificate, others = _pkcs12(store)
        trusted = (*((certificate,) if certificate is not None else ()), *others)
    if not trusted:
        raise InvalidConfigError(f"{store.config}: it contains no certificate")
    return trusted


def _pem_text(store: StoreSettings) -> str:
    try:
        return _read(store).decode()
    except UnicodeDecodeError:
        raise InvalidConfigError(
            f"{store.config}.location: {store.location} is not PEM text; set {store.config}.type=PKCS12 if it is a"
            " PKCS12 file"
        ) from None


def _decrypted(store: StoreSettings, key: str) -> str:
    """The key as OpenSSL reads it without a password."""
    if "ENCRYPTED" not in key:
        return key
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    config = f"{store.config.removesuffix('keystore')}key.password"
    if store.key_password is None:
        raise InvalidConfigError(f"the private key of {store.config} is encrypted; set {config}")
    try:
        loaded = load_pem_private_key(key.encode(), store.key_password.encode())
    except (ValueError, TypeError):
        raise InvalidConfigError(f"{config} does not decrypt the private key of {store.config}") from None
    return loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _pkcs12(store: StoreSettings) -> tuple[Any, str | None, list[str]]:
    """The private key, its certificate and the other certificates of a PKCS12 file, certificates as PEM."""
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    content = _read(store)
    try:
        loaded = load_pkcs12(content, None if store.password is None else store.password.encode())
    except ValueError:
        what = "is wrong" if store.password else "is not set"
        raise InvalidConfigError(
            f"{store.config}.location: cannot open {store.location}: {store.config}.password {what}, or it is not a"
            " PKCS12 file"
        ) from None
    own = loaded.cert.certificate.public_bytes(Encoding.PEM).decode() if loaded.cert is not None else None
    others = [each.certificate.public_bytes(Encoding.PEM).decode() for each in loaded.additional_certs]
    return loaded.key, own, others


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    for found in _BLOCK.finditer(text.replace("\\n", "\n")):
        yield found[1], _wrapped(found[1], found[0])


def _wrapped(kind: str, block: str) -> str:
    """A PEM block on lines of its own: in a properties file, a block is often one line with spaces."""
    begin, end = f"-----BEGIN {kind}-----", f"-----END {kind}-----"
    inner = block.removeprefix(begin).removesuffix(end).strip()
    return f"{begin}\n{inner}\n{end}\n" if "\n" in inner else f"{begin}\n{chr(10).join(inner.split())}\n{end}\n"


def _joined(certificates: Sequence[str]) -> str:
    return "\n".join(certificates)


@contextmanager
def _as_file(content: str) -> Iterator[str]:
    """A path to the content: a private key should not be written to a disk, and `load_cert_chain` takes only paths."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("ottla-key", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, content.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(content.encode())
        file.flush()
        yield file.name


def _reason(error: ssl.SSLError) -> str:
    return str(error.reason or error).replace("_", " ").lower()
