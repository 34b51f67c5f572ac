"""Messages between versions: whatever is on the wire, one version's classes come out, and the other way round."""

from typing import Any
from uuid import UUID

import pytest
from kio.schema.create_topics.v7.response import CreatableTopicResult, CreateTopicsResponse
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest
from kio.schema.index import PayloadEntityType
from kio.schema.metadata.v13.request import MetadataRequest
from kio.schema.types import TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32

from ottla.model.error_codes import ErrorCode
from ottla.protocol.apis import ADVERTISED, SERVED, ApiKey, Versions
from ottla.protocol.classic_members import Heartbeat, JoinGroup, SyncGroup
from ottla.protocol.consumer_heartbeats import ConsumerHeartbeatRequest
from ottla.protocol.messages import (
    BrokenMessageError,
    frame_body,
    milliseconds,
    newest_version,
    read_request,
    read_response,
    wire_error,
    write_request,
    write_response,
)
from ottla.protocol.offset_commits import OffsetCommit
from ottla.protocol.share_acknowledgements import ShareAcknowledgement
from tests.sweeps import sweep
from tests.wire import exchange

EVERY_VERSION = [
    (api_key, version)
    for api_key, versions in SERVED.items()
    for version in range(versions.lowest, versions.highest + 1)
]
TOPIC_ID = UUID(int=5)


def newest(api_key: ApiKey, version: int, kind: PayloadEntityType) -> Any:
    return exchange.message_class(api_key, newest_version(api_key, version, kind), kind)


class TestEveryVersion:
    @sweep(("api_key", "version"), EVERY_VERSION)
    def test_requests_come_out_in_the_newest_class(self, api_key: ApiKey, version: int) -> None:
        compiled = {
            ApiKey.OFFSET_COMMIT: OffsetCommit,
            ApiKey.JOIN_GROUP: JoinGroup,
            ApiKey.SYNC_GROUP: SyncGroup,
            ApiKey.HEARTBEAT: Heartbeat,
            ApiKey.CONSUMER_GROUP_HEARTBEAT: ConsumerHeartbeatRequest,
            ApiKey.SHARE_ACKNOWLEDGE: ShareAcknowledgement,
        }
        message = compiled.get(api_key) or newest(api_key, version, EntityType.request)
        body = exchange.request_body(api_key, version, {})
        assert message is type(read_request(api_key, version, memoryview(body)))

    @sweep(("api_key", "version"), EVERY_VERSION)
    def test_responses_of_the_newest_class_can_be_written(self, api_key: ApiKey, version: int) -> None:
        response = exchange.fill(newest(api_key, version, EntityType.response), {})
        frame = write_response(api_key, version, -7, response)
        assert len(frame) - 4 == int.from_bytes(frame[:4], "big")
        correlation_id, found = exchange.read_response(api_key, version, frame[4:])
        assert -7 % 2**32 == correlation_id
        assert exchange.message_class(api_key, version, EntityType.response) is type(found)

    @sweep(("api_key", "version"), EVERY_VERSION)
    def test_requests_of_the_newest_class_can_be_written(self, api_key: ApiKey, version: int) -> None:
        values: dict[str, Any] = {"topics": []}  # Null would mean something else, which the oldest cannot say.
        request = exchange.fill(newest(api_key, version, EntityType.request), values)
        for client_id in (None, "", "ä client"):
            name = None if client_id is None else client_id.encode()
            frame = exchange.request_frame(api_key, version, values, correlation_id=9, client_id=name)
            assert frame == write_request(api_key, version, 9, client_id, request)

    @sweep(("api_key", "version"), EVERY_VERSION)
    def test_a_body_gets_the_same_frame_as_a_response(self, api_key: ApiKey, version: int) -> None:
        whole = write_response(api_key, version, 3, exchange.fill(newest(api_key, version, EntityType.response), {}))
        has_tags = exchange.is_flexible(api_key, version) and api_key is not ApiKey.API_VERSIONS
        assert whole == frame_body(api_key, version, 3, whole[9 if has_tags else 8 :])

    @sweep(("api_key", "version"), EVERY_VERSION)
    def test_responses_come_out_in_the_newest_class(self, api_key: ApiKey, version: int) -> None:
        response = exchange.fill(newest(api_key, version, EntityType.response), {})
        frame = write_response(api_key, version, 5, response)
        correlation_id, found = read_response(api_key, version, memoryview(frame)[4:])
        assert (5, type(response)) == (correlation_id, type(found))


class TestFieldsThatComeAndGo:
    def test_what_an_old_request_lacks_has_the_schema_s_default(self) -> None:
        body = exchange.request_body(ApiKey.METADATA, 1, {"topics": [{"name": "t"}]})
        request: MetadataRequest = read_request(ApiKey.METADATA, 1, memoryview(body))
        assert request.allow_auto_topic_creation
        assert not request.include_topic_authorized_operations
        assert [("t", None)] == [(topic.name, topic.topic_id) for topic in request.topics or ()]

    def test_null_and_empty_stay_what_they_are(self) -> None:
        for topics, expected in ((None, None), ([], ())):
            body = exchange.request_body(ApiKey.METADATA, 9, {"topics": topics})
            assert expected == read_request(ApiKey.METADATA, 9, memoryview(body)).topics

    @pytest.mark.parametrize("version", range(2, 8))
    def test_what_an_old_response_lacks_is_left_out(self, version: int) -> None:
        topic = CreatableTopicResult(
            name=TopicName("t"),
            topic_id=TOPIC_ID,
            error_code=wire_error(ErrorCode.NONE),
            error_message=None,
            num_partitions=i32(3),
            replication_factor=i16(2),
            configs=(),
        )
        response = CreateTopicsResponse(throttle_time=milliseconds(8), topics=(topic,))
        frame = write_response(ApiKey.CREATE_TOPICS, version, 1, response)
        (found,) = exchange.read_response(ApiKey.CREATE_TOPICS, version, frame[4:])[1].topics
        assert ("t", version >= 5, version >= 7) == (
            found.name,
            hasattr(found, "num_partitions"),
            hasattr(found, "topic_id"),
        )
        again = read_response(ApiKey.CREATE_TOPICS, version, memoryview(frame)[4:])[1].topics[0]
        assert (3 if version >= 5 else -1, TOPIC_ID if version >= 7 else None) == (again.num_partitions, again.topic_id)

    @pytest.mark.parametrize("version", range(1, 7))
    def test_topics_to_delete_were_once_names(self, version: int) -> None:
        names = ["one", "two"]
        values = {"topic_names": names, "topics": [{"name": name} for name in names]}
        body = exchange.request_body(ApiKey.DELETE_TOPICS, version, values)
        request: DeleteTopicsRequest = read_request(ApiKey.DELETE_TOPICS, version, memoryview(body))
        assert [("one", None), ("two", None)] == [(topic.name, topic.topic_id) for topic in request.topics]
        frame = exchange.request_frame(ApiKey.DELETE_TOPICS, version, values, correlation_id=1)
        assert frame == write_request(ApiKey.DELETE_TOPICS, version, 1, exchange.CLIENT_ID.decode(), request)


class TestGroups:
    @pytest.mark.parametrize("version", range(6))
    def test_who_leaves_was_once_one(self, version: int) -> None:
        values = {"group_id": "g", "member_id": "m", "members": [{"member_id": "m"}]}
        body = exchange.request_body(ApiKey.LEAVE_GROUP, version, values)
        request = read_request(ApiKey.LEAVE_GROUP, version, memoryview(body))
        assert ("g", ["m"]) == (request.group_id, [member.member_id for member in request.members])
        frame = exchange.request_frame(ApiKey.LEAVE_GROUP, version, values, correlation_id=1)
        assert frame == write_request(ApiKey.LEAVE_GROUP, version, 1, exchange.CLIENT_ID.decode(), request)

    @pytest.mark.parametrize("version", range(1, 10))
    def test_offsets_were_once_of_one_group(self, version: int) -> None:
        for topics in ([{"name": "t", "partition_indexes": [3, 1]}], None if version >= 2 else []):
            values = {"group_id": "g", "topics": topics, "groups": [{"group_id": "g", "topics": topics}]}
            body = exchange.request_body(ApiKey.OFFSET_FETCH, version, values)
            request = read_request(ApiKey.OFFSET_FETCH, version, memoryview(body))
            (group,) = request.groups
            asked = None if topics is None else [(each["name"], (3, 1)) for each in topics]
            found = None if group.topics is None else [(each.name, each.partition_indexes) for each in group.topics]
            assert ("g", asked) == (group.group_id, found)
            frame = exchange.request_frame(ApiKey.OFFSET_FETCH, version, values, correlation_id=1)
            assert frame == write_request(ApiKey.OFFSET_FETCH, version, 1, exchange.CLIENT_ID.decode(), request)

    @pytest.mark.parametrize("version", range(1, 10))
    def test_their_answer_too(self, version: int) -> None:
        part = {"partition_index": 3, "committed_offset": 5, "metadata": "m"}
        group = {
            "group_id": "g",
            "topics": [{"name": "t", "partitions": [part]}],
            "error_code": wire_error(ErrorCode(16)),
        }
        response = exchange.fill(newest(ApiKey.OFFSET_FETCH, version, EntityType.response), {"groups": [group]})
        frame = write_response(ApiKey.OFFSET_FETCH, version, 1, response)
        (found,) = read_response(ApiKey.OFFSET_FETCH, version, memoryview(frame)[4:])[1].groups
        (topic,) = found.topics
        (offset,) = topic.partitions
        assert ("t", 3, 5, "m") == (topic.name, offset.partition_index, offset.committed_offset, offset.metadata)
        assert (16 if version >= 2 else 0) == found.error_code.value


class TestBrokenMessages:
    @pytest.mark.parametrize(
        ("version", "body"),
        [
            (1, b""),
            (1, b"\0\0\0"),
            (1, b"\0\0\0\1"),
            (1, b"\0\0\0\1\0\x05abc"),
            (1, b"\0\0\0\1\0\x02\xff\xfe"),
            (1, b"\x7f\xff\xff\xff"),
            (1, b"\xff\xff\xff\x00"),
            (9, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
            (9, b"\x02\xff\xff\xff\xff\x07a"),
            (12, b"\x02" + bytes(15)),
        ],
    )
    def test_requests(self, version: int, body: bytes) -> None:
        with pytest.raises(BrokenMessageError, match=f"METADATA v{version} request cannot be read"):
            read_request(ApiKey.METADATA, version, memoryview(body))

    def test_cut_off_anywhere(self) -> None:
        values = {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": 5}]}]}
        body = exchange.request_body(ApiKey.LIST_OFFSETS, 11, values)
        for size in range(len(body)):
            with pytest.raises(BrokenMessageError):
                read_request(ApiKey.LIST_OFFSETS, 11, memoryview(body)[:size])

    def test_a_response_header_that_does_not_end(self) -> None:
        for tags in (b"", b"\xff\xff\xff\xff\xff\xff", b"\x01\x00"):
            with pytest.raises(BrokenMessageError):
                read_response(ApiKey.METADATA, 9, memoryview(bytes(4) + tags))


class TestApis:
    def test_a_range_has_both_its_ends(self) -> None:
        assert [False, True, True, False] == [version in Versions(2, 3) for version in range(1, 5)]

    def test_what_is_advertised_is_served(self) -> None:
        """But for the oldest versions of Produce, which only librdkafka looks at."""
        differing = {key for key in ADVERTISED if ADVERTISED[key] != SERVED.get(key)}
        assert {ApiKey.PRODUCE} == differing
        assert SERVED[ApiKey.PRODUCE].highest == ADVERTISED[ApiKey.PRODUCE].highest
