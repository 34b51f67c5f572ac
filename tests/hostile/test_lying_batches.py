"""Batches that lie are refused with a reason, store nothing, and take no more memory than one batch may."""

from random import Random
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from ottla.protocol.apis import ApiKey
from ottla.records.layout import Codec
from tests.broker_process import BrokerProcess
from tests.hostile.batches import BOMBS, batch_around, lying_batches, small_batch
from tests.hostile.bystander import Bystander
from tests.hostile.conftest import GROWTH_BYTES_MAX
from tests.hostile.requests import SPAN, Target
from tests.wire.exchange import RawConnection
from tests.wire.world import create_topic, end_offset, unused_name

BOMB_BYTES = 1 << 30
SMALL_BOMB = (Codec.SNAPPY, "recompressed")
KINDS = {
    "plain": {},
    "compacted": {"cleanup_policy": "compact"},
    "recompressed": {"compression_type": "zstd"},
    "by append time": {"message_timestamp_type": "LogAppendTime"},
}
"""Topics of whose batches the broker looks at the header, at the keys, at everything, or changes the header."""


def sent(connection: RawConnection, topic_id: UUID, content: bytes | None) -> Any:
    """What became of a batch."""
    part = {"index": 0, "records": content}
    values = {"acks": -1, "timeout": SPAN, "topic_data": [{"topic_id": topic_id, "partition_data": [part]}]}
    (topic,) = connection.ask_newest(ApiKey.PRODUCE, values).responses
    return topic.partition_responses[0]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_a_lying_batch_is_stored(broker: BrokerProcess, kind: str) -> None:
    name = unused_name()
    with RawConnection(broker.address) as connection:
        topic_id = create_topic(connection, name, 1, **KINDS[kind])
        for lie, content in lying_batches(Random(5)).items():
            assert ErrorCode.none is not sent(connection, topic_id, content).error_code, lie
        assert ErrorCode.none is not sent(connection, topic_id, None).error_code
        assert 0 == end_offset(connection, name)
        assert ErrorCode.none is sent(connection, topic_id, small_batch(Random(6))).error_code


@pytest.mark.parametrize(
    ("codec", "kind"),
    # Snappy makes at most 22 bytes of one: only where records are looked into is there anything to find.
    [(codec, kind) for codec in BOMBS for kind in ("compacted", "recompressed") if (codec, kind) != SMALL_BOMB],
)
def test_bombs_do_not_burst(broker: BrokerProcess, codec: Codec, kind: str) -> None:
    """A gigabyte of zeros in some kilobytes: refused, without ever being there."""
    name = unused_name()
    # Whoever recompresses to a codec takes a batch that has it already as it is.
    configs = {"cleanup_policy": "compact"} if kind == "compacted" else {"compression_type": "lz4"}
    if codec is Codec.LZ4 and kind == "recompressed":
        configs = {"compression_type": "gzip"}
    bomb = batch_around(codec, BOMBS[codec](BOMB_BYTES))
    with Bystander(broker.address) as bystander, RawConnection(broker.address) as connection:
        topic_id = create_topic(connection, name, 1, max_message_bytes=str(64 << 20), **configs)
        broker.forget_peak()
        before = broker.resident_bytes()
        answer = sent(connection, topic_id, bomb)
        assert ErrorCode.none is not answer.error_code
        assert 0 == end_offset(connection, name)
    grown = broker.peak_bytes() - before
    print(f"{codec.name} {len(bomb) >> 10} KiB: {answer.error_message}; grown by {grown >> 20} MiB")
    assert grown < GROWTH_BYTES_MAX
    bystander.check(pace=False)


@pytest.mark.parametrize("codec", BOMBS)
def test_damaged_compression(broker: BrokerProcess, target: Target, codec: Codec) -> None:
    random = Random(7)
    with RawConnection(broker.address) as connection:
        topic_id = create_topic(connection, unused_name(), 1, cleanup_policy="compact")
        for _ in range(200):
            payload = bytearray(small_batch(random, codec=codec)[61:])
            for _ in range(random.randint(1, 3)):
                payload[random.randrange(len(payload))] = random.getrandbits(8)
            del payload[random.randrange(len(payload)) + 1 :]
            count = random.choice((1, 2, 5, 1000, 2**31 - 1))
            # Now and then the damage is none; what counts is that the broker says something, and says it in words.
            answer = sent(connection, topic_id, batch_around(codec, bytes(payload), count))
            assert (ErrorCode.none is answer.error_code) == (answer.error_message is None)
