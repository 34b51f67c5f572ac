"""The keyword arguments of the client classes: checked as a whole, refused with the nearest name that exists.

Each kind of client has a frozen dataclass with its options and their defaults, and a `TypedDict` of the same names, by
which a type checker knows them. Names are those of kafka-python, where it has them.
"""

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Final, Literal, TypedDict, TypeVar, Union, get_args, get_origin, get_type_hints

from ottla.client.network.backoff import Backoff
from ottla.model.errors import MisuseError

C = TypeVar("C", bound="ClientConfig")


class OptionError(MisuseError, TypeError):
    """A client was given an option that it does not have, or a value that is not allowed; says what is."""


class ClientOptions(TypedDict, total=False):
    """What every client may be told; see `ClientConfig`."""

    bootstrap_servers: str | Sequence[str]
    client_id: str
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    socket_connection_setup_timeout_ms: int


def option(default: Any = MISSING, *, least: int | None = None, most: int | None = None) -> Any:
    """An option with the bounds of its number."""
    return field(default=default, metadata={"least": least, "most": most})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """What every client was told."""

    bootstrap_servers: str | Sequence[str] = "localhost:9092"
    """Some of the cluster's brokers, as `host:port`; the others are found through them."""
    client_id: str = "ottla"
    """What brokers write into their logs and metrics."""
    request_timeout_ms: int = option(30_000, least=1)
    """How long a broker may take to answer."""
    retry_backoff_ms: int = option(100, least=0)
    retry_backoff_max_ms: int = option(1_000, least=0)
    """The wait before the first retry, and the longest; it doubles in between, a little at random."""
    metadata_max_age_ms: int = option(300_000, least=0)
    """When the cluster's topics and leaders are asked for again, though nothing failed."""
    socket_connection_setup_timeout_ms: int = option(10_000, least=1)
    """How long a broker may take to accept a connection."""

    @property
    def backoff(self) -> Backoff:
        """The waits between tries."""
        return Backoff(first_ms=self.retry_backoff_ms, most_ms=max(self.retry_backoff_ms, self.retry_backoff_max_ms))


def configured(kind: type[C], client: str, given: Mapping[str, Any]) -> C:
    """The config of a client, called so for people, from its keyword arguments. Raises `OptionError`."""
    known = {each.name: each for each in fields(kind)}
    hints = get_type_hints(kind)
    for name, value in given.items():
        if name not in known:
            near = get_close_matches(name.lower().replace(".", "_"), known, n=1)
            advice = f"did you mean {near[0]}?" if near else f"it has {', '.join(sorted(known))}"
            raise OptionError(f"{client} has no option {name}; {advice}")
        _check(client, known[name], hints[name], value)
    return kind(**given)


_TEXT_BYTES_MAX: Final = 32_767
"""The longest text of Kafka's protocol."""
_SIMPLE: Final = {int: "a whole number", float: "a number", bool: "True or False", str: "a text", type(None): "None"}


def _check(client: str, known: "Field[Any]", hint: Any, value: object) -> None:
    where = f"{known.name}={value!r} of {client}"
    if not _fits(hint, value):
        raise OptionError(f"{where} is not allowed; it takes {_words(hint)}")
    if isinstance(value, str):
        _check_text(client, known.name, value)
    least, most = known.metadata.get("least"), known.metadata.get("most")
    if isinstance(value, int | float):
        if least is not None and value < least:
            raise OptionError(f"{where} is too small; {least} is the least")
        if most is not None and value > most:
            raise OptionError(f"{where} is too large; {most} is the most")


def _check_text(client: str, name: str, value: str) -> None:
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise OptionError(f"{name}={value!r} of {client} is not allowed; it cannot be encoded as UTF-8") from None
    if size > _TEXT_BYTES_MAX:
        raise OptionError(f"{name} of {client} is too long: {size} bytes as UTF-8; {_TEXT_BYTES_MAX} is the most")


def _fits(hint: Any, value: object) -> bool:
    if hint is Any:
        return True
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(each, value) for each in get_args(hint))
    if origin is Literal:
        # 1 is no True, and True is no 1.
        return any(type(value) is type(each) and value == each for each in get_args(hint))
    if hint is bool:
        return isinstance(value, bool)
    if hint in (int, float):
        return isinstance(value, int if hint is int else int | float) and not isinstance(value, bool)
    if origin is Callable or hint is Callable:
        return callable(value)
    if origin is Sequence and get_args(hint) == (str,):
        return isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(e, str) for e in value)
    return isinstance(value, origin or hint)


def _words(hint: Any) -> str:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_words(each) for each in get_args(hint)))
    if origin is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    if origin is Callable or hint is Callable:
        return "something to call"
    if origin is Sequence and get_args(hint) == (str,):
        return "a list of texts"
    return _SIMPLE.get(hint, getattr(origin or hint, "__name__", str(hint)))
