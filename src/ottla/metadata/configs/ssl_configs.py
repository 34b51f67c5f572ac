"""The broker configs of TLS, with the names, types and defaults of Kafka 4.3.

All of them can be set for one listener, with its prefix (`listener_overrides.py`). Those of certificates and keys may
change while the broker runs, for one listener of one broker. `ottla.transport.tls_context` knows what they mean.
"""

from typing import Final

from ottla.metadata.configs.definition import ConfigType, UpdateMode
from ottla.metadata.configs.definition import define as _define

_STRING, _LIST, _BOOLEAN = ConfigType.STRING, ConfigType.LIST, ConfigType.BOOLEAN
_PASSWORD, _CLASS = ConfigType.PASSWORD, ConfigType.CLASS
_ONE: Final = UpdateMode.PER_BROKER
_UNUSED: Final = "It has no effect in Ottla, which uses Python's ssl module and OpenSSL."

SSL_CONFIGS: Final = (
    _define("ssl.keystore.type", _STRING, "JKS",
            "The format of the keystore: PEM or PKCS12. JKS files must be converted to PKCS12.", update_mode=_ONE),
    _define("ssl.keystore.location", _STRING, None,
            "The file with the broker's private key and certificate chain. A changed file is read again while the"
            " broker runs.", update_mode=_ONE),
    _define("ssl.keystore.password", _PASSWORD, None, "The password of a PKCS12 keystore.", update_mode=_ONE),
    _define("ssl.key.password", _PASSWORD, None, "The password of the private key in a PEM keystore.",
            update_mode=_ONE),
    _define("ssl.keystore.key", _PASSWORD, None,
            "The private key as PEM text, instead of a file; for keystore type PEM.", update_mode=_ONE),
    _define("ssl.keystore.certificate.chain", _PASSWORD, None,
            "The certificate chain as PEM text, the broker's own certificate first; for keystore type PEM.",
            update_mode=_ONE),
    _define("ssl.truststore.type", _STRING, "JKS",
            "The format of the truststore: PEM or PKCS12. JKS files must be converted to PKCS12.", update_mode=_ONE),
    _define("ssl.truststore.location", _STRING, None,
            "The file with the certificates that are trusted. A changed file is read again while the broker runs.",
            update_mode=_ONE),
    _define("ssl.truststore.password", _PASSWORD, None, "The password of a PKCS12 truststore.", update_mode=_ONE),
    _define("ssl.truststore.certificates", _PASSWORD, None,
            "The certificates that are trusted as PEM text, instead of a file; for truststore type PEM.",
            update_mode=_ONE),
    _define("ssl.client.auth", _STRING, "none",
            "Whether clients need a certificate: required, requested (clients without one are anonymous) or none."
            " On a SASL_SSL listener only the value with the listener's prefix counts.",
            allowed=("required", "requested", "none")),
    _define("ssl.enabled.protocols", _LIST, "TLSv1.2,TLSv1.3", "The versions of TLS that are allowed.",
            allowed=("TLSv1.2", "TLSv1.3"), update_mode=_ONE),
    _define("ssl.protocol", _STRING, "TLSv1.3", f"The newest version of TLS in Java. {_UNUSED}", update_mode=_ONE),
    _define("ssl.cipher.suites", _LIST, "",
            "The cipher suites that are allowed, by their IANA or OpenSSL names; if empty, OpenSSL's secure defaults.",
            update_mode=_ONE),
    _define("ssl.endpoint.identification.algorithm", _STRING, "https",
            "How a broker checks the name of a broker that it connects to: https, or empty for no check.",
            allowed=("https", "HTTPS", ""), update_mode=_ONE),
    _define("ssl.principal.mapping.rules", _STRING, "DEFAULT",
            "How the name in a client certificate is mapped to a principal: RULE:pattern/replacement/ with L or U at"
            " its end for lower or upper case, or DEFAULT for the whole name; separated by commas; the first rule that"
            " matches is used."),
    _define("ssl.allow.dn.changes", _BOOLEAN, "false",
            "Whether a new certificate may have a different distinguished name than the one that it replaces."),
    _define("ssl.allow.san.changes", _BOOLEAN, "false",
            "Whether a new certificate may lack subject alternative names of the one that it replaces."),
    _define("ssl.kernel.tls.enable", _BOOLEAN, "true",
            "Whether to use kernel TLS for sent data where it is available (Linux with the module tls). Fetches"
            " then go from the file to the socket without passing through the broker's process."),
    _define("ssl.keymanager.algorithm", _STRING, "SunX509", _UNUSED, update_mode=_ONE),
    _define("ssl.trustmanager.algorithm", _STRING, "PKIX", _UNUSED, update_mode=_ONE),
    _define("ssl.provider", _STRING, None, _UNUSED, update_mode=_ONE),
    _define("ssl.secure.random.implementation", _STRING, None, _UNUSED, update_mode=_ONE),
    _define("ssl.engine.factory.class", _CLASS, None, _UNUSED, update_mode=_ONE),
)  # fmt: skip
