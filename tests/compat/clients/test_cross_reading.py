"""What one client wrote, every client reads: all shapes of records, in every codec, with offsets and timestamps."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.clients.catalogue import CODECS, NAMES, NULL_HEADERS, having
from tests.compat.clients.conftest import ClientOf
from tests.compat.clients.foreign_client import Read
from tests.compat.clients.shapes import KEEP_ALL, expected_reading, shapes, stored_codecs

WrittenBy = Callable[[str], tuple[str, list[Read]]]


@pytest.fixture(scope="module")
def written_by(client_of: ClientOf) -> WrittenBy:
    """A topic that a client wrote, a partition per codec, and what should be found in it."""
    topics: dict[str, tuple[str, list[Read]]] = {}

    def write(name: str) -> tuple[str, list[Read]]:
        if name not in topics:
            client, topic = client_of(name), f"written-by-{name}"
            client.create_topic(topic, partitions=len(CODECS), configs=KEEP_ALL)
            expected: list[Read] = []
            for partition, codec in enumerate(CODECS):
                sent = shapes(partition=partition, null_headers=name in having(NULL_HEADERS))
                expected += expected_reading(sent, client.send(topic, sent, codec=codec))
            topics[name] = topic, expected
        return topics[name]

    return write


@pytest.mark.parametrize("writer", NAMES)
def test_offsets_are_given_in_order(written_by: WrittenBy, writer: str) -> None:
    _, expected = written_by(writer)
    places = [(record.partition, record.offset) for record in expected]
    assert [(partition, offset) for partition in range(len(CODECS)) for offset in range(len(shapes()))] == places


@pytest.mark.parametrize("writer", NAMES)
def test_batches_are_stored_as_they_were_compressed(written_by: WrittenBy, writer: str, data: Path) -> None:
    """A client that doubts the broker's abilities compresses nothing, or otherwise, without a word.

    Some batches may be plain: a client may find that a single small record is not worth it.
    """
    topic, _ = written_by(writer)
    stored = [stored_codecs(data, topic, partition) | {0} for partition in range(len(CODECS))]
    assert [{0, number} for number in range(len(CODECS))] == stored


@pytest.mark.parametrize("reader", NAMES)
@pytest.mark.parametrize("writer", NAMES)
def test_every_client_reads_what_every_client_wrote(
    written_by: WrittenBy, client_of: ClientOf, writer: str, reader: str
) -> None:
    topic, expected = written_by(writer)
    assert expected == client_of(reader).read(topic, len(expected), partitions=len(CODECS))
