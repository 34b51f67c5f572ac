"""Throw-away certificates for tests: an authority, and certificates that it signs.

They are valid for a few days, and every authority has a new key. They are for tests only: keys are not encrypted.
"""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, GeneralName, KeyUsage, Name

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_VALID: Final = timedelta(days=7)
_SKEW: Final = timedelta(days=1)
"""Certificates are valid from a day ago, for machines and containers whose clocks differ."""


class CertificateAuthority:
    """Signs certificates and writes them to `folder` as PEM files; `file` is its own, for peers to trust."""

    def __init__(self, folder: Path, name: str = "ottla test authority") -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder: Final = folder
        self.file: Final = folder / "authority.crt"
        self._key = _new_key()
        self._name = _name(name)
        self._certificate = self._signed(self._name, self._key, ())
        self.file.write_bytes(_pem(self._certificate))

    def issue(self, name: str, hosts: tuple[str, ...] = (), *, valid: timedelta = _VALID) -> Path:
        """A file with a new private key and certificate for the common name; a broker's certificate has its hosts.

        An older file of this name is replaced at once. `valid` is for how long; if it is negative, the certificate has
        expired.
        """
        key = _new_key()
        path = self.folder / f"{name}.pem"
        new = self.folder / f"{name}.pem.new"
        new.touch(mode=0o600)
        new.write_bytes(_key_pem(key) + _pem(self._signed(_name(name), key, hosts, valid)))
        new.replace(path)
        return path

    def _signed(
        self, subject: "Name", key: "EllipticCurvePrivateKey", hosts: tuple[str, ...], valid: timedelta = _VALID
    ) -> "Certificate":
        from cryptography import x509
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.x509.oid import ExtendedKeyUsageOID

        now = datetime.now(UTC)
        is_authority = key is self._key
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + valid)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(_key_usage(is_authority), critical=True)
        )
        if not is_authority:
            usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            made = made.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_host(each) for each in hosts])
            made = made.add_extension(names, critical=False)
        return made.sign(self._key, SHA256())


def _new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _key_usage(is_authority: bool) -> "KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> "Name":
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _host(text: str) -> "GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pem(certificate: "Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: "EllipticCurvePrivateKey") -> bytes:
    """In PKCS 8, the only format that Java reads."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
