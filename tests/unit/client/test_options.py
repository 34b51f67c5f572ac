"""Options of clients: what is refused, and what the one who gave it is told."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_type_hints

import pytest

from ottla.client.options import ClientConfig, ClientOptions, OptionError, configured, option


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ClientConfig):
    acks: Literal[0, 1, -1, "all"] = "all"
    linger_ms: int = option(0, least=0, most=1000)
    share: float = 0.5
    is_loud: bool = False
    on_delivery: Callable[[Any], object] | None = None
    names: Sequence[str] = ()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"linger": 5}, "Producer has no option linger; did you mean linger_ms?"),
        ({"linger.ms": 5}, "Producer has no option linger.ms; did you mean linger_ms?"),
        ({"linger_ms": "5"}, "linger_ms='5' of Producer is not allowed; it takes a whole number"),
        ({"linger_ms": True}, "linger_ms=True of Producer is not allowed; it takes a whole number"),
        ({"linger_ms": -1}, "linger_ms=-1 of Producer is too small; 0 is the least"),
        ({"linger_ms": 1001}, "linger_ms=1001 of Producer is too large; 1000 is the most"),
        ({"acks": 2}, "acks=2 of Producer is not allowed; it takes one of 0, 1, -1, 'all'"),
        ({"acks": True}, "acks=True of Producer is not allowed; it takes one of 0, 1, -1, 'all'"),
        ({"is_loud": 1}, "is_loud=1 of Producer is not allowed; it takes True or False"),
        ({"share": "x"}, "share='x' of Producer is not allowed; it takes a number"),
        ({"on_delivery": 3}, "on_delivery=3 of Producer is not allowed; it takes something to call or None"),
        ({"names": "abc"}, "names='abc' of Producer is not allowed; it takes a list of texts"),
        ({"names": [1]}, "names=[1] of Producer is not allowed; it takes a list of texts"),
        ({"client_id": None}, "client_id=None of Producer is not allowed; it takes a text"),
        ({"client_id": "\ud800"}, "client_id='\\ud800' of Producer is not allowed; it cannot be encoded as UTF-8"),
        ({"client_id": "é" * 16384}, "client_id of Producer is too long: 32768 bytes as UTF-8; 32767 is the most"),
    ],
)
def test_refused_with_what_is_allowed(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(OptionError) as refusal:
        configured(Config, "Producer", given)
    assert expected == str(refusal.value)


def test_a_name_like_none_is_answered_with_all() -> None:
    with pytest.raises(OptionError, match="it has acks, bootstrap_servers, client_id"):
        configured(Config, "Producer", {"zzzzzz": 1})


def test_values_are_taken_and_the_rest_is_default() -> None:
    given: dict[str, Any] = {
        "acks": -1,
        "linger_ms": 7,
        "share": 1,
        "is_loud": True,
        "on_delivery": print,
        "names": ["a"],
        "bootstrap_servers": ("a:1", "b:2"),
    }
    config = configured(Config, "Producer", given)
    assert given == {name: getattr(config, name) for name in given}
    assert 30_000 == config.request_timeout_ms
    assert (100, 1000) == (config.backoff.first_ms, config.backoff.most_ms)


def test_what_a_type_checker_knows_is_what_there_is() -> None:
    assert {each.name for each in fields(ClientConfig)} == set(ClientOptions.__annotations__)
    hints = get_type_hints(ClientConfig)
    assert get_type_hints(ClientOptions) == {each.name: hints[each.name] for each in fields(ClientConfig)}
