"""The listeners of a broker, from the configs of their names, addresses and security protocols. Pure.

The configs are Kafka's: listeners, advertised.listeners, listener.security.protocol.map, inter.broker.listener.name and
security.inter.broker.protocol. Opening the listeners is `ottla.transport.listeners`'s part.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Final, NamedTuple

from ottla.broker.configs.sasl_config import sasl_errors
from ottla.metadata.configs.broker_configs import BROKER_CONFIGS, split_listener
from ottla.metadata.configs.definition import ConfigValue
from ottla.metadata.configs.listener_overrides import override_name, value_for_listener
from ottla.model.errors import InvalidConfigError
from ottla.security.principal_mapping import WHOLE_NAME, PrincipalMapping
from ottla.security.security_protocol import SecurityProtocol
from ottla.transport.listener_tls import ListenerTlsSettings
from ottla.transport.tls_context import TlsSettings, no_keystore

_WITH_SASL: Final = frozenset({SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL})
_NOT_AN_ADDRESS: Final = frozenset({"0.0.0.0", "::"})


class Endpoint(NamedTuple):
    """A listener's name and address; an empty host means every interface."""

    name: str
    host: str
    port: int


class ListenerConfig(NamedTuple):
    """One listener."""

    name: str
    security_protocol: SecurityProtocol
    host: str
    """Empty for every interface."""
    port: int
    """0 for any free port."""
    advertised: Endpoint | None
    """Where clients are told to connect; None if the listener is not advertised."""


def endpoints_of(values: Mapping[str, ConfigValue | None], config: str) -> tuple[Endpoint, ...]:
    """The addresses in a config such as listeners; none if it is not set."""
    value = values[config]
    listed = value if isinstance(value, tuple) else ()
    return tuple(Endpoint(*parts) for each in listed if (parts := split_listener(each)) is not None)


def listeners_of(values: Mapping[str, ConfigValue | None]) -> tuple[ListenerConfig, ...]:
    """The listeners of values without `listener_errors`."""
    protocols, _ = _protocols(values)
    listeners = endpoints_of(values, "listeners")
    advertised = {each.name: each for each in endpoints_of(values, "advertised.listeners") or listeners}
    return tuple(
        ListenerConfig(
            each.name, SecurityProtocol(protocols[each.name]), each.host, each.port, advertised.get(each.name)
        )
        for each in listeners
    )


def inter_broker_listener(values: Mapping[str, ConfigValue | None]) -> str:
    """The name of the listener that brokers use among themselves.

    inter.broker.listener.name; if it is not set, the listener that is named as security.inter.broker.protocol, as in
    Kafka, or else the only one with this protocol.
    """
    name = values["inter.broker.listener.name"]
    if isinstance(name, str):
        return name.upper()
    advertised = {each.name: each.security_protocol for each in listeners_of(values) if each.advertised is not None}
    return _inter_broker_candidates(values, advertised)[0]


def _inter_broker_candidates(values: Mapping[str, ConfigValue | None], advertised: Mapping[str, str]) -> list[str]:
    """The listeners that brokers could use if none is named, from the advertised ones and their protocols."""
    wanted = str(values["security.inter.broker.protocol"])
    candidates = [name for name, protocol in advertised.items() if protocol == wanted] or list(advertised)
    return [wanted] if wanted in candidates else candidates


def listener_tls_settings(
    values: Mapping[str, ConfigValue | None], listener: str, protocol: SecurityProtocol
) -> ListenerTlsSettings:
    """The TLS configs of a listener: those with its prefix, or else without. Raises `InvalidConfigError`."""
    names = [name for name in BROKER_CONFIGS if name.startswith("ssl.")]
    chosen = {name: value_for_listener(values, listener, name) for name in names}
    if protocol.has_login:
        # As in Kafka: clients that log in need a certificate only if this very listener says so.
        chosen["ssl.client.auth"] = values.get(override_name(listener, "ssl.client.auth"))
    is_override = any(values.get(override_name(listener, name)) is not None for name in names)
    mapping = PrincipalMapping.parse(str(chosen["ssl.principal.mapping.rules"] or "DEFAULT"))
    return ListenerTlsSettings(
        tls=TlsSettings.parse(chosen, prefix=override_name(listener, "") if is_override else ""),
        # The principal of a client that logs in is its user.
        mapping=WHOLE_NAME if protocol.has_login else mapping,
        allows_dn_changes=bool(chosen["ssl.allow.dn.changes"]),
        allows_san_changes=bool(chosen["ssl.allow.san.changes"]),
    )


def open_to_others(values: Mapping[str, ConfigValue | None], listener: ListenerConfig) -> str | None:
    """A warning if clients of other machines can use a listener without authentication; None if they cannot."""
    protocol = listener.security_protocol
    if _is_loopback(listener.host) or protocol.has_login:
        return None
    if protocol.is_encrypted:
        if listener_tls_settings(values, listener.name, protocol).tls.client_auth == "required":
            return None
        what = f"set {override_name(listener.name, 'ssl.client.auth')}=required, or use SASL_SSL"
    else:
        what = "use SASL_SSL, or SSL with ssl.client.auth=required, in listener.security.protocol.map"
    where = f"{listener.host or 'all interfaces'}, port {listener.port or 'chosen by the system'}"
    return (
        f"listener {listener.name} ({protocol} on {where}) accepts clients from other machines WITHOUT AUTHENTICATION:"
        f" every client that reaches the port is User:ANONYMOUS; {what}, or bind it to localhost"
    )


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def listener_errors(values: Mapping[str, ConfigValue | None], static: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with the listeners, one message for each problem; `static` is what the operator wrote."""
    listeners = endpoints_of(values, "listeners")
    names = {each.name for each in listeners}
    yield from _duplicates("listeners", [each.name for each in listeners])
    yield from _duplicate_ports(listeners)
    protocols, problems = _protocols(values)
    yield from problems
    yield from _protocol_errors(values, listeners, protocols)
    for each in listeners:
        if protocols.get(each.name) in _WITH_SASL:
            yield from sasl_errors(values, each.name)
    advertised = endpoints_of(values, "advertised.listeners")
    yield from _duplicates("advertised.listeners", [each.name for each in advertised])
    for each in advertised:
        if each.name not in names:
            yield f"advertised.listeners: {each.name} is not a name in listeners"
        if each.host in _NOT_AN_ADDRESS:
            yield f"advertised.listeners: clients cannot connect to {each.host}; write a name or address"
    shown = {each.name: protocols.get(each.name, "") for each in advertised or listeners}
    yield from _inter_broker_errors(values, static, shown)


def _duplicates(config: str, names: list[str]) -> Iterator[str]:
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{config}: the name {name} is used {count} times; listener names must be unique"


def _duplicate_ports(listeners: tuple[Endpoint, ...]) -> Iterator[str]:
    """Two listeners may share a port if one has an IPv4 and the other an IPv6 address."""
    for port, count in Counter(each.port for each in listeners if each.port).items():
        hosts = [each.host for each in listeners if each.port == port]
        is_pair = count == 2 and all(hosts) and len({":" in host for host in hosts}) == 2
        if count > 1 and not is_pair:
            yield f"listeners: port {port} is used {count} times; each listener needs its own port"


def _protocol_errors(
    values: Mapping[str, ConfigValue | None], listeners: tuple[Endpoint, ...], protocols: Mapping[str, str]
) -> Iterator[str]:
    for each in listeners:
        protocol = protocols.get(each.name)
        if protocol is None:
            yield f"listeners: {each.name} has no security protocol; set one in listener.security.protocol.map"
        elif SecurityProtocol(protocol).is_encrypted:
            try:
                settings = listener_tls_settings(values, each.name, SecurityProtocol(protocol))
                if not settings.tls.keystore.is_set:
                    yield f"listener {each.name}: {no_keystore(settings.tls.keystore.config)}"
            except InvalidConfigError as error:
                yield f"listener {each.name}: {error}"


def _inter_broker_errors(
    values: Mapping[str, ConfigValue | None],
    static: Mapping[str, str],
    advertised: Mapping[str, str],
) -> Iterator[str]:
    name, protocol = values["inter.broker.listener.name"], values["security.inter.broker.protocol"]
    if isinstance(name, str):
        if "security.inter.broker.protocol" in static:
            yield "inter.broker.listener.name and security.inter.broker.protocol cannot both be set"
        if name.upper() not in advertised:
            yield f"inter.broker.listener.name: {name} is not an advertised listener"
    elif "security.inter.broker.protocol" in static and protocol not in advertised.values():
        yield f"security.inter.broker.protocol: no advertised listener has {protocol}"
    elif len(candidates := _inter_broker_candidates(values, advertised)) > 1:
        yield (
            "inter.broker.listener.name is not set, and several listeners qualify:"
            f" {', '.join(candidates)}; set it to one of them"
        )


def _protocols(values: Mapping[str, ConfigValue | None]) -> tuple[dict[str, str], list[str]]:
    """The security protocol of each listener name, and what is wrong with the map."""
    found: dict[str, str] = {}
    problems = []
    for pair in str(values["listener.security.protocol.map"] or "").split(","):
        name, colon, protocol = (part.strip().upper() for part in pair.partition(":"))
        if not pair.strip():
            continue
        if not colon or protocol not in list(SecurityProtocol):
            problems.append(
                f"listener.security.protocol.map: {pair.strip()!r} is not a listener name, a colon and one of"
                f" {', '.join(SecurityProtocol)}"
            )
        elif found.setdefault(name, protocol) != protocol:
            problems.append(
                f"listener.security.protocol.map: {name} has two security protocols, {found[name]} and {protocol}"
            )
    return found, problems
