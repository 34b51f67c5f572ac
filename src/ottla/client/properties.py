"""Kafka's `client.properties`: Java's file format, and the security configs in it as options of Ottla's clients.

`--command-config` of the command line and the `kafka.` options of Spark use the same names: security.protocol,
sasl.mechanism, sasl.jaas.config, ssl.truststore.location and so on. What the options mean is in `security_options.py`.
"""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from ottla.model.errors import InvalidConfigError, MisuseError
from ottla.security.jaas import MODULES, parse_jaas
from ottla.transport.tls_context import TlsSettings, client_context, load_material

_BYTES_MAX: Final = 16 * 1024 * 1024
_SEPARATOR: Final = re.compile(r"(?P<name>(?:\\.|[^\\=:\s])*)\s*[=:]?\s*", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}

_STORES: Final = frozenset(
    {
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.key.password",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
        "ssl.enabled.protocols",
        "ssl.cipher.suites",
        "ssl.endpoint.identification.algorithm",
    }
)
_TOKENS: Final = frozenset(
    {
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.scope",
    }
)
_LOGIN: Final = frozenset({"security.protocol", "sasl.mechanism", "sasl.jaas.config"})
_WITHOUT_EFFECT: Final = frozenset(
    {
        "sasl.client.callback.handler.class",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "security.providers",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    }
)
_PREFIXES_WITHOUT_EFFECT: Final = ("sasl.login.", "sasl.kerberos.", "sasl.oauthbearer.")
_FAMILIES: Final = ("security.", "ssl.", "sasl.")


def read_properties(path: str | Path) -> dict[str, str]:
    """The properties in a file. Raises `MisuseError` if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise MisuseError(f"cannot read {path}: {error.strerror}") from None
    if len(content) > _BYTES_MAX:
        raise MisuseError(f"{path} is larger than {_BYTES_MAX} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        # What Java's files were before they were UTF-8.
        text = content.decode("latin-1")
    return parse_properties(text)


def parse_properties(text: str) -> dict[str, str]:
    """The properties in a text of Java's format: comments with # or !, lines continued by a backslash, escapes."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        matched = _SEPARATOR.match(line)
        if matched is not None:
            found[_unescaped(matched["name"])] = _unescaped(line[matched.end() :])
    return found


def security_options(properties: Mapping[str, str]) -> dict[str, Any]:
    """The security options of a client, by the names of `ClientConfig`, from Kafka's names. Other names are ignored.

    Reads keystore and truststore. Raises `MisuseError` for a security config that does not exist, or has no use
    without another.
    """
    given = security_properties(properties)
    protocol = given.get("security.protocol", "PLAINTEXT").strip().upper()
    options: dict[str, Any] = {"security_protocol": protocol}
    try:
        if protocol.endswith("SSL"):
            settings = TlsSettings.parse({name: value for name, value in given.items() if name in _STORES})
            options["ssl_context"] = client_context(settings, load_material(settings))
        elif any(name in given for name in ("ssl.truststore.location", "ssl.keystore.location")):
            raise MisuseError(
                f"a keystore or truststore is set, but security.protocol={protocol} does not encrypt; use SSL or"
                " SASL_SSL"
            )
        if protocol.startswith("SASL"):
            options |= _login(given)
        elif "sasl.jaas.config" in given:
            raise MisuseError(
                f"sasl.jaas.config is set, but security.protocol={protocol} does not log in; use SASL_SSL"
            )
    except InvalidConfigError as error:
        raise MisuseError(str(error)) from None
    return options


def security_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Those of the properties that are security configs. Raises `MisuseError` for one that does not exist."""
    given = {name: value for name, value in properties.items() if name.startswith(_FAMILIES)}
    for name in given:
        _refuse_unknown(name)
    return given


def _login(given: Mapping[str, str]) -> dict[str, Any]:
    mechanism = given.get("sasl.mechanism", "").strip().upper()
    if mechanism not in MODULES:
        named = f"sasl.mechanism={mechanism} is not supported" if mechanism else "sasl.mechanism is not set"
        raise MisuseError(f"{named}; use one of {', '.join(MODULES)}")
    options: dict[str, Any] = {"sasl_mechanism": mechanism}
    jaas = parse_jaas(given["sasl.jaas.config"]) if "sasl.jaas.config" in given else None
    if jaas is not None and jaas.module != MODULES[mechanism]:
        raise MisuseError(
            f"sasl.jaas.config: {jaas.module} is not the login module of {mechanism}; use {MODULES[mechanism]}"
        )
    if mechanism == "OAUTHBEARER":
        from ottla.client.oauth_tokens import token_provider_of

        options["sasl_oauth_token_provider"] = token_provider_of(given, jaas.options if jaas is not None else {})
        return options
    if jaas is None or not jaas.username or not jaas.password:
        raise MisuseError(
            f'sasl.jaas.config: set it to {MODULES[mechanism]} required username="…" password="…"; for {mechanism}'
        )
    is_token = jaas.options.get("tokenauth", "").lower() == "true"
    return options | {
        "sasl_plain_username": jaas.username,
        "sasl_plain_password": jaas.password,
        "sasl_delegation_token": is_token,
    }


def _refuse_unknown(name: str) -> None:
    if name in _STORES | _TOKENS | _LOGIN | _WITHOUT_EFFECT or name.startswith(_PREFIXES_WITHOUT_EFFECT):
        return
    near = get_close_matches(name, _STORES | _TOKENS | _LOGIN, n=1)
    advice = f"did you mean {near[0]}?" if near else "see docs/security.md for those that exist"
    raise MisuseError(f"{name[:100]} is not a security config of clients; {advice}")


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for line in re.split(r"\r\n|\r|\n", text):
        stripped = line.lstrip(" \t\f")
        if not pending and (not stripped or stripped[0] in "#!"):
            continue
        whole = pending + stripped
        if (len(whole) - len(whole.rstrip("\\"))) % 2:
            pending = whole[:-1]
            continue
        pending = ""
        yield whole
    if pending:
        yield pending


def _unescaped(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        escaped = found[1]
        if escaped[0] == "u" and len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        return _CONTROL.get(escaped, escaped)

    return _ESCAPED.sub(plain, text)
