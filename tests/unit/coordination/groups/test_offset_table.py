"""The compiled table of committed offsets against a plain dict."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordination.groups.offset_table import OffsetTable
from ottla.coordination.groups.records import CommittedOffset, OffsetValue
from ottla.model.ids import TopicPartition
from ottla.protocol.offset_commits import CommitRows

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
METADATA = st.sampled_from(("", "m", "é" * 100))
IDS = st.none() | st.uuids()
PLACES = st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 5) | INT)
VALUES = st.builds(
    OffsetValue,
    offset=LONG,
    commit_ms=LONG,
    leader_epoch=INT,
    metadata=METADATA,
    expire_ms=st.none() | LONG,
    topic_id=IDS,
)
SETS = st.tuples(st.just("set"), PLACES, st.builds(CommittedOffset, VALUES, LONG))
DISCARDS = st.tuples(st.just("discard"), PLACES, st.none())
ROWS = st.lists(st.tuples(st.integers(0, 5) | INT, LONG, INT, st.none() | METADATA), max_size=5)
PUTS = st.tuples(st.just("put"), st.sampled_from("ab"), st.tuples(IDS, ROWS, LONG, st.integers(0, 2**60)))


@given(steps=st.lists(SETS | DISCARDS | PUTS, max_size=20))
def test_like_a_dict(steps: list[tuple[str, object, object]]) -> None:
    table = OffsetTable()
    model: dict[TopicPartition, CommittedOffset] = {}
    for step in steps:
        match step:
            case "set", TopicPartition() as place, CommittedOffset() as committed:
                table[place] = model[place] = committed
            case "discard", TopicPartition() as place, _:
                table.discard(place)
                model.pop(place, None)
            case "put", str() as topic, (
                (None | UUID()) as topic_id,
                list() as rows,
                int() as commit_ms,
                int() as turn,
            ):
                table.put(topic, topic_id, CommitRows(rows), commit_ms, turn)
                for number, (partition, offset, epoch, metadata) in enumerate(rows, start=turn + 1):
                    value = OffsetValue(offset, commit_ms, epoch, metadata or "", None, topic_id)
                    model[TopicPartition(topic, partition)] = CommittedOffset(value, number)
        assert len(model) == len(table)
        assert model == dict(table.items())
    for topic in "ab":
        partitions = [place.partition for place in table if place.topic == topic]
        assert sorted(partitions) == partitions
    for place in (*model, TopicPartition("a", 0), TopicPartition("c", 0)):
        assert (place in model) == (place in table)
        assert model.get(place) == table.get(place)
    assert {type(committed) for _, committed in table.items()} <= {CommittedOffset}
