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
        ({"linger_ms": "5"}, "Producer: linger_ms must be int, not str '5'"),
        ({"linger_ms": True}, "Producer: linger_ms must be int, not bool True"),
        ({"linger_ms": -1}, "Producer: linger_ms must be at least 0, not -1"),
        ({"linger_ms": 1001}, "Producer: linger_ms must be at most 1000, not 1001"),
        ({"acks": 2}, "Producer: acks must be one of 0, 1, -1, 'all', not int 2"),
        ({"acks": True}, "Producer: acks must be one of 0, 1, -1, 'all', not bool True"),
        ({"is_loud": 1}, "Producer: is_loud must be bool, not int 1"),
        ({"share": "x"}, "Producer: share must be float, not str 'x'"),
        ({"on_delivery": 3}, "Producer: on_delivery must be a callable or None, not int 3"),
        ({"names": "abc"}, "Producer: names must be a list of str, not str 'abc'; write ['abc']"),
        ({"names": [1]}, "Producer: names[0] must be str, not int 1"),
        ({"client_id": None}, "Producer: client_id must be str, not None"),
        ({"client_id": "\ud800"}, "Producer: client_id cannot be encoded as UTF-8: '\\ud800'"),
        ({"client_id": "é" * 16384}, "Producer: client_id must be at most 32767 bytes as UTF-8, not 32768"),
    ],
)
def test_refused_with_what_is_allowed(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(OptionError) as refusal:
        configured(Config, "Producer", given)
    assert expected == str(refusal.value)


def test_a_name_like_none_is_answered_with_all() -> None:
    with pytest.raises(OptionError, match="its options are acks, bootstrap_servers, client_id"):
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
