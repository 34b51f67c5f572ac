"""Options of producers: what excludes what, and what follows."""

from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from ottla.client.options import OptionError
from ottla.client.producer.options import ProducerConfig, ProducerOptions, producer_config
from ottla.records.layout import Codec


def test_defaults_are_kafkas() -> None:
    config = producer_config("Producer")
    assert (-1, True, 5, 16_384, 5) == (
        config.wire_acks,
        config.enable_idempotence,
        config.linger_ms,
        config.batch_size,
        config.max_in_flight_requests_per_connection,
    )
    assert (120_000, 60_000, 33_554_432, 1_048_576, Codec.NONE) == (
        config.delivery_timeout_ms,
        config.max_block_ms,
        config.buffer_memory,
        config.max_request_size,
        config.codec,
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"enable_idempotence": True, "acks": 1}, "cannot have enable_idempotence=True together with acks=1;"),
        ({"transactional_id": "x", "retries": 0}, "cannot have transactional_id together with retries=0;"),
        (
            {"enable_idempotence": True, "max_in_flight_requests_per_connection": 6, "acks": 0},
            "together with acks=0, max_in_flight_requests_per_connection=6;",
        ),
        ({"transactional_id": "x", "enable_idempotence": False}, "transactional_id together with enable_idempotence"),
        (
            {"transactional_id": ""},
            "Producer: transactional_id must not be empty; omit it",
        ),
        ({"delivery_timeout_ms": 100}, "delivery_timeout_ms must be at least .*, which is 30005, not 100"),
        ({"compression_type": "zip"}, "must be one of 'none', 'gzip', 'snappy', 'lz4', 'zstd' or None, not str 'zip'"),
        (
            {"key_serializer": 3},
            "Producer: key_serializer must be a callable or Serializer or RecordSerializer or None, not int 3",
        ),
        (
            {"compression_type": "gzip", "compression_level": 99},
            "Producer: compression_level=99 is not a level of gzip; its levels are -1 to 9",
        ),
        ({"compression_type": "snappy", "compression_level": 1}, "Producer: compression_level=1 has no effect with"),
        ({"acks": 2}, "must be one of -1, 0, 1, 'all', not int 2"),
        ({"batchsize": 2}, "did you mean batch_size?"),
        ({"linger_ms": -1}, "linger_ms must be at least 0, not -1"),
    ],
)
def test_refused(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(OptionError, match=expected):
        producer_config("Producer", **given)


@pytest.mark.parametrize("given", [{"acks": 1}, {"retries": 0}, {"max_in_flight_requests_per_connection": 6}])
def test_idempotence_that_nobody_asked_for_gives_way(given: dict[str, Any]) -> None:
    assert not producer_config("Producer", **given).enable_idempotence


def test_the_delivery_timeout_covers_a_request() -> None:
    assert 200_005 == producer_config("Producer", request_timeout_ms=200_000).delivery_timeout_ms


def test_what_a_type_checker_knows_is_what_there_is() -> None:
    assert {each.name for each in fields(ProducerConfig)} == set(get_type_hints(ProducerOptions))
    hints = get_type_hints(ProducerConfig)
    assert get_type_hints(ProducerOptions) == {each.name: hints[each.name] for each in fields(ProducerConfig)}
