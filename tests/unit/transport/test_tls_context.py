"""SSL contexts from Kafka's configs: every kind of store, and errors that say what to do."""

import os
import ssl
import tempfile
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate

from ottla.model.errors import InvalidConfigError
from ottla.transport.listener_tls import _check_handshake
from ottla.transport.tls_context import (
    TlsSettings,
    client_context,
    listener_context,
    load_material,
    openssl_cipher,
)

PASSWORD = "secret word"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def issued(authority: trustme.CA) -> trustme.LeafCert:
    return authority.issue_cert("localhost", common_name="broker-0")


def key_of(issued: trustme.LeafCert) -> str:
    return issued.private_key_pem.bytes().decode()


def chain_of(issued: trustme.LeafCert) -> str:
    return "".join(each.bytes().decode() for each in issued.cert_chain_pems)


def trust_of(authority: trustme.CA) -> str:
    return authority.cert_pem.bytes().decode()


def encrypted_key_of(issued: trustme.LeafCert) -> str:
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode())).decode()


def pkcs12_of(issued: trustme.LeafCert) -> bytes:
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    certificates = [load_pem_x509_certificate(each.bytes()) for each in issued.cert_chain_pems]
    encryption = BestAvailableEncryption(PASSWORD.encode())
    return pkcs12.serialize_key_and_certificates(b"it", key, certificates[0], certificates[1:], encryption)  # type: ignore[arg-type]


def shakes_hands(server: dict[str, Any], client: dict[str, Any]) -> None:
    """A handshake in memory; raises what is wrong with either side."""
    contexts = []
    for configs, make in ((server, listener_context), (client, client_context)):
        settings = TlsSettings.parse(configs)
        contexts.append(make(settings, load_material(settings)))
    _check_handshake(contexts[0], contexts[1], "handshake")


class TestStores:
    @pytest.fixture
    def stores(self, tmp_path: Path, authority: trustme.CA, issued: trustme.LeafCert) -> dict[str, dict[str, str]]:
        """The same key and certificates in all the ways in which they can be given."""
        files = {
            "both.pem": f"{key_of(issued)}\n{chain_of(issued)}",
            "reversed.pem": f"# a comment\n{chain_of(issued)}\n{key_of(issued)}",
            "encrypted.pem": f"{encrypted_key_of(issued)}{chain_of(issued)}",
            "trusted.pem": f"an authority\n{trust_of(authority)}",
        }
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        (tmp_path / "it.p12").write_bytes(pkcs12_of(issued))
        pem = {"ssl.keystore.type": "PEM"}
        in_one_line = {"ssl.keystore.key": key_of(issued), "ssl.keystore.certificate.chain": chain_of(issued)}
        return {
            "file": {**pem, "ssl.keystore.location": str(tmp_path / "both.pem")},
            "reversed": {**pem, "ssl.keystore.location": str(tmp_path / "reversed.pem")},
            "encrypted": {
                **pem,
                "ssl.keystore.location": str(tmp_path / "encrypted.pem"),
                "ssl.key.password": PASSWORD,
            },
            "text": {**pem, **in_one_line},
            "one line": {**pem, **{name: text.replace("\n", " ") for name, text in in_one_line.items()}},
            "pkcs12": {
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": str(tmp_path / "it.p12"),
                "ssl.keystore.password": PASSWORD,
            },
            # Java opens PKCS12 files as JKS too, which is the default type.
            "default type": {
                "ssl.keystore.location": str(tmp_path / "it.p12"),
                "ssl.keystore.password": PASSWORD,
            },
        }

    @pytest.mark.parametrize("kind", ["file", "reversed", "encrypted", "text", "one line", "pkcs12", "default type"])
    def test_keystores(
        self, stores: dict[str, dict[str, str]], tmp_path: Path, authority: trustme.CA, kind: str
    ) -> None:
        trusting = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tmp_path / "trusted.pem")}
        shakes_hands(stores[kind], trusting)
        # The client has the key and the broker asks for it.
        shakes_hands({**stores["text"], **trusting, "ssl.client.auth": "required"}, {**stores[kind], **trusting})

    def test_a_keystore_is_loaded_without_files_in_memory(
        self, stores: dict[str, dict[str, str]], tmp_path: Path, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As on systems other than Linux; the file on disk that takes their place is removed."""
        monkeypatch.delattr(os, "memfd_create")
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        before = set(tmp_path.iterdir())
        trusting = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": trust_of(authority)}
        shakes_hands(stores["text"], trusting)
        assert before == set(tmp_path.iterdir())

    def test_truststores(self, stores: dict[str, dict[str, str]], tmp_path: Path, authority: trustme.CA) -> None:
        shakes_hands(stores["text"], {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": trust_of(authority)})
        made = tmp_path / "trust.p12"
        trusted = pkcs12.PKCS12Certificate(load_pem_x509_certificate(trust_of(authority).encode()), b"ca")
        made.write_bytes(pkcs12.serialize_java_truststore([trusted], BestAvailableEncryption(b"password")))
        shakes_hands(stores["text"], {"ssl.truststore.location": str(made), "ssl.truststore.password": "password"})

    def test_a_broker_certificate_can_be_trusted_by_itself(
        self, stores: dict[str, dict[str, str]], issued: trustme.LeafCert
    ) -> None:
        own = issued.cert_chain_pems[0].bytes().decode()
        shakes_hands(stores["text"], {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": own})

    def test_other_authorities_are_not_trusted(self, stores: dict[str, dict[str, str]]) -> None:
        other = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": trust_of(trustme.CA())}
        with pytest.raises(InvalidConfigError, match="unable to get local issuer certificate"):
            shakes_hands(stores["text"], other)
        with pytest.raises(InvalidConfigError, match="unable to get local issuer certificate"):
            shakes_hands(stores["text"], {})

    def test_required_client_certificate(self, stores: dict[str, dict[str, str]], authority: trustme.CA) -> None:
        trusting = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": trust_of(authority)}
        with pytest.raises(InvalidConfigError, match="peer did not return a certificate"):
            shakes_hands({**stores["text"], **trusting, "ssl.client.auth": "required"}, trusting)
        shakes_hands({**stores["text"], **trusting, "ssl.client.auth": "requested"}, trusting)

    def test_keys_are_never_shown(self, stores: dict[str, dict[str, str]]) -> None:
        for kind in stores:
            settings = TlsSettings.parse(stores[kind])
            shown = repr(settings) + repr(load_material(settings))
            assert "PRIVATE KEY" not in shown
            assert PASSWORD not in shown


class TestErrors:
    def make(self, configs: dict[str, Any]) -> None:
        settings = TlsSettings.parse(configs, prefix="listener.name.x.")
        listener_context(settings, load_material(settings))

    def refused(self, configs: dict[str, Any], *words: str) -> None:
        with pytest.raises(InvalidConfigError) as caught:
            self.make(configs)
        for each in words:
            assert each in str(caught.value)
        assert PASSWORD not in str(caught.value)

    def test_no_keystore(self) -> None:
        self.refused({}, "listener.name.x.ssl.keystore.location")

    def test_jks(self, tmp_path: Path) -> None:
        made = tmp_path / "it.jks"
        made.write_bytes(bytes.fromhex("feedfeed00000002"))
        self.refused({"ssl.keystore.location": str(made)}, "JKS", "keytool -importkeystore", "PKCS12")

    def test_pem_without_its_type(self, tmp_path: Path, issued: trustme.LeafCert) -> None:
        (tmp_path / "it.pem").write_text(key_of(issued) + chain_of(issued))
        self.refused({"ssl.keystore.location": str(tmp_path / "it.pem")}, "set listener.name.x.ssl.keystore.type=PEM")

    def test_missing_file(self, tmp_path: Path) -> None:
        configs = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(tmp_path / "none")}
        self.refused(configs, "cannot read", "No such file")

    def test_wrong_passwords(self, tmp_path: Path, issued: trustme.LeafCert) -> None:
        (tmp_path / "it.p12").write_bytes(pkcs12_of(issued))
        store = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(tmp_path / "it.p12")}
        self.refused({**store, "ssl.keystore.password": "x"}, "ssl.keystore.password is wrong")
        self.refused(store, "ssl.keystore.password is not set")
        inline = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": encrypted_key_of(issued),
            "ssl.keystore.certificate.chain": chain_of(issued),
        }
        self.refused(inline, "encrypted", "set listener.name.x.ssl.key.password")
        self.refused({**inline, "ssl.key.password": "x"}, "ssl.key.password does not decrypt")

    def test_key_of_another_certificate(self, authority: trustme.CA, issued: trustme.LeafCert) -> None:
        other = authority.issue_cert("other")
        configs = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": key_of(issued),
            "ssl.keystore.certificate.chain": chain_of(other),
        }
        self.refused(configs, "the first certificate does not match the private key")

    @pytest.mark.parametrize(
        ("configs", "words"),
        [
            ({"ssl.keystore.type": "DER"}, "must be PEM or PKCS12"),
            ({"ssl.keystore.type": "PEM", "ssl.keystore.key": "k"}, "must be set together"),
            ({"ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c"}, "ssl.keystore.type=PEM"),
            ({"ssl.truststore.type": "PEM", "ssl.truststore.password": "p"}, "no meaning for PEM"),
            ({"ssl.enabled.protocols": "TLSv1.1"}, "TLSv1.2, TLSv1.3"),
            ({"ssl.enabled.protocols": ""}, "TLSv1.2, TLSv1.3"),
            ({"ssl.client.auth": "maybe"}, "none, requested, required"),
            ({"ssl.endpoint.identification.algorithm": "http"}, "https, or empty"),
        ],
    )
    def test_contradictions(self, configs: dict[str, str], words: str) -> None:
        self.refused(configs, words, "listener.name.x.ssl")

    def test_empty_stores(self, tmp_path: Path) -> None:
        (tmp_path / "empty.pem").write_text("nothing")
        pem = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(tmp_path / "empty.pem")}
        self.refused(pem, "found 0 private keys and 0 certificates")
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tmp_path / "empty.pem")}
        self.refused(trust, "contains no certificate")


class TestProtocols:
    def context(self, issued: trustme.LeafCert, **configs: str) -> ssl.SSLContext:
        store = {"ssl.keystore.type": "PEM", "ssl.keystore.key": key_of(issued)}
        named = {name.replace("_", "."): value for name, value in configs.items()}
        settings = TlsSettings.parse({**store, "ssl.keystore.certificate.chain": chain_of(issued), **named})
        return listener_context(settings, load_material(settings))

    def test_versions(self, issued: trustme.LeafCert) -> None:
        both = self.context(issued)
        assert (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3) == (both.minimum_version, both.maximum_version)
        new = self.context(issued, ssl_enabled_protocols="TLSv1.3")
        assert (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3) == (new.minimum_version, new.maximum_version)

    def test_only_listed_cipher_suites(self, issued: trustme.LeafCert) -> None:
        made = self.context(
            issued,
            ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        )
        assert ssl.TLSVersion.TLSv1_2 == made.maximum_version
        older = {each["name"] for each in made.get_ciphers() if each["protocol"] != "TLSv1.3"}
        assert {"ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-CHACHA20-POLY1305"} == older
        new = self.context(issued, ssl_cipher_suites="TLS_AES_256_GCM_SHA384")
        assert ssl.TLSVersion.TLSv1_3 == new.minimum_version
        with pytest.raises(InvalidConfigError, match="no cipher suite that OpenSSL supports"):
            self.context(issued, ssl_cipher_suites="TLS_FOO")
        with pytest.raises(InvalidConfigError, match=r"no suite of TLSv1\.3"):
            self.context(issued, ssl_cipher_suites="AES256-SHA", ssl_enabled_protocols="TLSv1.3")

    @pytest.mark.parametrize(
        ("iana", "openssl"),
        [
            ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
            ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
            ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA", "DHE-RSA-AES256-SHA"),
            ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
            ("TLS_RSA_WITH_AES_256_CBC_SHA256", "AES256-SHA256"),
            ("TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "DHE-RSA-CHACHA20-POLY1305"),
            ("TLS_ECDHE_ECDSA_WITH_AES_256_CCM_8", "ECDHE-ECDSA-AES256-CCM8"),
            ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ],
    )
    def test_names_of_cipher_suites(self, iana: str, openssl: str) -> None:
        assert openssl == openssl_cipher(iana)
