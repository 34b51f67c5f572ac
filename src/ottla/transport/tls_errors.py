"""What went wrong in a TLS handshake, in words that say what to do: for a broker's log and for a client's error."""

import ssl
from typing import Final

_NOT_TLS: Final = frozenset(
    {
        "HTTP_REQUEST",
        "HTTPS_PROXY_REQUEST",
        "WRONG_VERSION_NUMBER",
        "UNKNOWN_PROTOCOL",
        "PACKET_LENGTH_TOO_LONG",
        "RECORD_LAYER_FAILURE",
        "WRONG_SSL_VERSION",
        "UNEXPECTED_MESSAGE",
        "BAD_RECORD_TYPE",
        "INVALID_CCS_MESSAGE",
        "RECORD_TOO_SMALL",
    }
)
_NOT_TRUSTED: Final = frozenset(
    {
        "TLSV1_ALERT_UNKNOWN_CA",
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_REVOKED",
        "TLSV1_ALERT_ACCESS_DENIED",
        "TLSV1_ALERT_DECRYPT_ERROR",
    }
)
_NO_CERTIFICATE: Final = frozenset(
    {"TLSV13_ALERT_CERTIFICATE_REQUIRED", "PEER_DID_NOT_RETURN_A_CERTIFICATE", "SSLV3_ALERT_NO_CERTIFICATE"}
)
_NOTHING_IN_COMMON: Final = frozenset(
    {
        "UNSUPPORTED_PROTOCOL",
        "NO_SHARED_CIPHER",
        "NO_PROTOCOLS_AVAILABLE",
        "TLSV1_ALERT_PROTOCOL_VERSION",
        "SSLV3_ALERT_HANDSHAKE_FAILURE",
        "VERSION_TOO_LOW",
        "NO_SUITABLE_SIGNATURE_ALGORITHM",
        "TLSV1_ALERT_INSUFFICIENT_SECURITY",
        "WRONG_SIGNATURE_TYPE",
    }
)
_HOSTNAME_CODES: Final = frozenset({62, 64})
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""
_EXPIRED_CODE: Final = 10
_NOT_YET_VALID_CODE: Final = 9


def words_for_broker(error: OSError, protocol: str) -> str:
    """Why the handshake of a client failed, for the broker's log; `protocol` is that of the listener."""
    reason = _reason(error)
    if reason in _NOT_TLS:
        return (
            f"the listener's protocol is {protocol}, but the client sent bytes that are not TLS; set"
            f" security.protocol={protocol} in the client"
        )
    if reason in _NO_CERTIFICATE:
        return (
            "the client has no certificate, and ssl.client.auth=required; give it a keystore with a certificate that"
            " this broker's truststore trusts"
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not accepted: {error.verify_message}; see ssl.truststore.* of the broker"
    if reason in _NOT_TRUSTED:
        return (
            f"the client does not accept this broker's certificate ({_plain(reason)}); see the truststore of the"
            " client, and the host name that it connects to"
        )
    if reason in _NOTHING_IN_COMMON:
        return (
            f"no TLS version or cipher suite in common ({_plain(reason)}); see ssl.enabled.protocols and"
            " ssl.cipher.suites on both sides"
        )
    return f"the TLS handshake failed: {_plain(reason) if reason else error.strerror or error}"


def words_for_client(error: OSError, host: str) -> str:
    """Why the handshake with a broker failed, for the error of a client that wanted to reach `host`."""
    reason = _reason(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _HOSTNAME_CODES:
            return (
                f"the broker's certificate is not valid for the host name {host!r}: {error.verify_message}; connect by"
                " a name in the certificate, or add this name to it (subject alternative names)"
            )
        if error.verify_code in (_EXPIRED_CODE, _NOT_YET_VALID_CODE):
            return f"the broker's certificate cannot be used now: {error.verify_message}; renew it, or check the clock"
        return (
            f"the broker's certificate is not trusted: {error.verify_message}; set ssl_cafile (ssl.truststore.location)"
            " to the certificate of the authority that signed it"
        )
    if reason in _NOT_TLS:
        return (
            "the broker does not use TLS on this port; set security_protocol (security.protocol) to PLAINTEXT or"
            " SASL_PLAINTEXT, or use the port of a listener with TLS"
        )
    if reason in _NO_CERTIFICATE:
        return "the broker requires a client certificate; set ssl_certfile and ssl_keyfile (ssl.keystore.location)"
    if reason in _NOT_TRUSTED:
        return (
            f"the broker does not accept this client's certificate ({_plain(reason)}); use one that the broker's"
            " truststore trusts"
        )
    if reason in _NOTHING_IN_COMMON:
        return (
            f"no TLS version or cipher suite in common with the broker ({_plain(reason)}); see ssl_ciphers here, and"
            " ssl.enabled.protocols and ssl.cipher.suites of the broker"
        )
    return f"the TLS handshake failed: {_plain(reason) if reason else error.strerror or error}"


def _reason(error: OSError) -> str:
    return str(error.reason or "") if isinstance(error, ssl.SSLError) else ""


def _plain(reason: str) -> str:
    return reason.replace("_", " ").lower()
