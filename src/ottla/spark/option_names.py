"""Option names of Spark's Kafka connector, and the settings of Kafka's own clients that pass through it.

`kafka.`-prefixed options are settings of the Java clients; here they become the keyword arguments of ours. What only
has a meaning for Java (socket buffers, metrics reporters) is accepted and has no effect; what would change the meaning
of a query if it were ignored (classes to load, misspelt security settings) is refused. Spark hands over option names in
lower case, so every comparison here is without case. The options of the source and of the sink themselves:
`source/options.py`, `sink/options.py`.
"""

import types
from collections.abc import Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from ottla.client.options import ClientConfig, OptionError
from ottla.model.errors import MisuseError

PREFIX: Final = "kafka."

_IGNORED_NAMES: Final = """
    auto.include.jmx.reporter client.dns.lookup connections.max.idle.ms enable.metrics.push
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms
    security.providers send.buffer.bytes socket.connection.setup.timeout.max.ms

    auto.commit.interval.ms check.crcs default.api.timeout.ms fetch.min.bytes group.instance.id group.protocol
    group.remote.assignor heartbeat.interval.ms max.poll.interval.ms max.poll.records partition.assignment.strategy
    session.timeout.ms client.rack exclude.internal.topics allow.auto.create.topics retries
    share.acknowledgement.mode

    metadata.max.idle.ms partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms
    partitioner.ignore.keys transaction.two.phase.commit.enable batch.size buffer.memory delivery.timeout.ms linger.ms
    max.block.ms max.in.flight.requests.per.connection max.request.size
    compression.gzip.level compression.lz4.level compression.zstd.level
"""
_IGNORED: Final = frozenset(_IGNORED_NAMES.split())
"""Settings of Kafka's clients that ours may have no use for. One that our clients have is passed on all the same."""

_CLASS_NAMES: Final = """
    config.providers interceptor.classes key.deserializer key.serializer partitioner.class
    sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class ssl.engine.factory.class
    value.deserializer value.serializer
"""
_CLASSES: Final = frozenset(_CLASS_NAMES.split())
"""Settings that name a Java class."""

_SECURITY: Final = ("sasl.", "ssl.", "security.")

_CODECS_WITH_LEVELS: Final = ("gzip", "lz4", "zstd")


def client_options(raw: Mapping[str, str]) -> dict[str, Any]:
    """The keyword arguments of our clients for every `kafka.` option; others are passed over.

    They are those of all clients together: `chosen_for` picks what one kind of client takes. Raises `OptionError` for a
    setting that does not exist, with the nearest one that does, for a value that cannot be read, and for settings that
    name Java classes.
    """
    found: dict[str, Any] = {}
    security: dict[str, str] = {}
    for key, value in raw.items():
        if not key.lower().startswith(PREFIX):
            continue
        name = key[len(PREFIX) :].lower()
        keyword = name.replace(".", "_")
        if name in _CLASSES:
            raise OptionError(f"{PREFIX}{name} names a Java class, which cannot be loaded here; omit it")
        if name.startswith(_SECURITY):
            security[name] = value
            continue
        hint = _hint_of(keyword)
        if hint is not None:
            found[keyword] = _parsed(PREFIX + name, hint, value)
        elif name not in _IGNORED:
            ours = [each.replace("_", ".") for each in (*_producer_hints(), *_consumer_hints())]
            raise _unknown(PREFIX + name, [PREFIX + each for each in (*ours, *_IGNORED)], "Kafka's client")
    if security:
        found["security_properties"] = _security_properties(security)
    level = _compression_level(raw, found.get("compression_type"))
    if level is not None:
        found["compression_level"] = level
    return found


def chosen_for(kind: type[ClientConfig], options: Mapping[str, Any]) -> dict[str, Any]:
    """Those keyword arguments that one kind of client takes, `ConsumerConfig` or `AdminConfig` for example."""
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in options.items() if name in names}


def refuse_unknown(raw: Mapping[str, str], known: Iterable[str], what: str) -> None:
    """Raises `OptionError` for an option that is not known, with the nearest name; `kafka.` options are passed over.

    `known` has the names as people write them; `what` says whose options they are ("the source ottla").
    """
    names = list(known)
    lower = {each.lower() for each in names}
    for key in raw:
        if key.lower() not in lower and not key.lower().startswith(PREFIX):
            raise _unknown(key, [*names, PREFIX + "bootstrap.servers"], what)


def bootstrap_of(raw: Mapping[str, str]) -> str:
    """The brokers to begin with; raises `OptionError` if they are not named."""
    for key, value in raw.items():
        if key.lower() == "kafka.bootstrap.servers" and value.strip():
            return value
    raise OptionError("the option kafka.bootstrap.servers is missing; set it to host:port,host:port")


def _unknown(key: str, names: Iterable[str], what: str) -> OptionError:
    by_lower = {each.lower(): each for each in names}
    near = get_close_matches(key.lower(), by_lower, n=1, cutoff=0.5)
    advice = f"did you mean {by_lower[near[0]]}?" if near else f"there are {', '.join(sorted(by_lower.values()))}"
    return OptionError(f"{what} has no option {key}; {advice}")


def _hint_of(keyword: str) -> Any | None:
    """The type of an argument of our clients; None if they have no such one."""
    # Consumers come with much code, and a sink's every commit is a new process: they are looked at last.
    return _producer_hints().get(keyword) or _consumer_hints().get(keyword)


@cache
def _producer_hints() -> dict[str, Any]:
    from ottla.client.producer.options import ProducerConfig

    return _readable_hints(ProducerConfig, "compression_level")


@cache
def _consumer_hints() -> dict[str, Any]:
    from ottla.client.consumer.options import ConsumerConfig

    return _readable_hints(ConsumerConfig, "consumer_timeout_ms")


def _readable_hints(kind: type[ClientConfig], not_kafkas: str) -> dict[str, Any]:
    """What a client can be told, with its type; only what can be written as text."""
    hints = get_type_hints(kind)
    names = [each.name for each in fields(kind) if each.name != not_kafkas]
    return {name: hints[name] for name in names if _is_readable(hints[name])}


def _choices(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _is_readable(hint: Any) -> bool:
    return any(each in (int, float, bool, str) or get_origin(each) is Literal for each in _choices(hint))


def _parsed(name: str, hint: Any, text: str) -> Any:
    """The value of a setting from its text, as the type of our clients' argument wants it."""
    text = text.strip()
    choices = _choices(hint)
    for each in choices:
        if get_origin(each) is Literal:
            for allowed in get_args(each):
                if text.lower() == str(allowed).lower():
                    return allowed
            wanted = ", ".join(map(str, get_args(each)))
            raise OptionError(f"{name}={text} is not allowed; it takes one of {wanted}")
        if each is bool:
            if text.lower() not in ("true", "false"):
                raise OptionError(f"{name}={text} is not allowed; it takes true or false")
            return text.lower() == "true"
    if str in choices:
        return text
    try:
        return int(text)
    except ValueError:
        pass
    if float in choices:
        try:
            return float(text)
        except ValueError:
            pass
    raise OptionError(f"{name}={text} is not allowed; it takes a whole number")


def _security_properties(security: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """As text: executors read keystores and truststores where they run."""
    from ottla.client.properties import security_properties

    try:
        return tuple(sorted(security_properties(security).items()))
    except MisuseError as error:
        raise OptionError(f"{PREFIX}{error}") from None


def _compression_level(raw: Mapping[str, str], codec: object) -> int | None:
    if codec not in _CODECS_WITH_LEVELS:
        return None
    wanted = f"{PREFIX}compression.{codec}.level"
    for key, value in raw.items():
        if key.lower() == wanted:
            return int(_parsed(wanted, int, value))
    return None
