"""JoinGroup, SyncGroup and Heartbeat without kio say the same as kio, in every version, and are refused as by kio's
guard."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader
from kio.serial.errors import SerialError
from kio.static.constants import EntityType

from ottla.protocol.apis import SERVED, ApiKey
from ottla.protocol.classic_members import (
    Heartbeat,
    JoinGroup,
    SyncGroup,
    read_heartbeat,
    read_join_group,
    read_sync_group,
)
from ottla.protocol.shapes import ELEMENTS_ALWAYS, ELEMENTS_MAX, ShapeError, checked
from ottla.protocol.varints import unsigned_varint
from tests.effort import effort
from tests.wire.exchange import message_class, request_body

MILLISECOND = timedelta(milliseconds=1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=140)
DATA = st.binary(max_size=140)
INT = st.integers(-(2**31), 2**31 - 1)
SPAN = INT.map(lambda ms: timedelta(milliseconds=ms))
Said = tuple[object, ...]


def said_by_join(read: JoinGroup) -> Said:
    return (
        read.group_id, read.session_timeout_ms, read.rebalance_timeout_ms, read.member_id, read.instance_id,
        read.protocol_type, read.protocols, read.protocols_size, read.reason,
    )  # fmt: skip


def join_of_kio(read: Any) -> Said:
    rebalance_timeout = getattr(read, "rebalance_timeout", -MILLISECOND)
    return (
        read.group_id, read.session_timeout // MILLISECOND, rebalance_timeout // MILLISECOND, read.member_id,
        getattr(read, "group_instance_id", None), read.protocol_type,
        tuple((each.name, each.metadata) for each in read.protocols),
        sum(len(each.name) + len(each.metadata) for each in read.protocols), getattr(read, "reason", None),
    )  # fmt: skip


def said_by_sync(read: SyncGroup) -> Said:
    return (
        read.group_id, read.generation, read.member_id, read.instance_id, read.protocol_type, read.protocol_name,
        read.assignments, read.assignments_size,
    )  # fmt: skip


def sync_of_kio(read: Any) -> Said:
    return (
        read.group_id, read.generation_id, read.member_id, getattr(read, "group_instance_id", None),
        getattr(read, "protocol_type", None), getattr(read, "protocol_name", None),
        tuple((each.member_id, each.assignment) for each in read.assignments),
        sum(len(each.member_id) + len(each.assignment) for each in read.assignments),
    )  # fmt: skip


def said_by_heartbeat(read: Heartbeat) -> Said:
    return read.group_id, read.generation, read.member_id, read.instance_id


def heartbeat_of_kio(read: Any) -> Said:
    return read.group_id, read.generation_id, read.member_id, getattr(read, "group_instance_id", None)


class Api(NamedTuple):
    """One of the requests: how it is read here and by kio, what it may say, and an example."""

    key: ApiKey
    flexible_from: int
    read: Callable[[int, bytes], Said]
    of_kio: Callable[[Any], Said]
    values: st.SearchStrategy[dict[str, Any]]
    sample: dict[str, Any]


JOIN = Api(
    ApiKey.JOIN_GROUP,
    6,
    lambda version, body: said_by_join(read_join_group(version, body)),
    join_of_kio,
    st.fixed_dictionaries(
        {
            "group_id": TEXT,
            "session_timeout": SPAN,
            "rebalance_timeout": SPAN,
            "member_id": TEXT,
            "group_instance_id": st.none() | TEXT,
            "protocol_type": TEXT,
            "protocols": st.lists(st.fixed_dictionaries({"name": TEXT, "metadata": DATA}), max_size=4),
            "reason": st.none() | TEXT,
        }
    ),
    {
        "group_id": "group",
        "session_timeout": timedelta(seconds=45),
        "rebalance_timeout": timedelta(seconds=60),
        "member_id": "member",
        "group_instance_id": "instance",
        "protocol_type": "consumer",
        "protocols": [{"name": "rangé", "metadata": b"\1\2"}, {"name": "sticky", "metadata": b""}],
        "reason": "why",
    },
)
SYNC = Api(
    ApiKey.SYNC_GROUP,
    4,
    lambda version, body: said_by_sync(read_sync_group(version, body)),
    sync_of_kio,
    st.fixed_dictionaries(
        {
            "group_id": TEXT,
            "generation_id": INT,
            "member_id": TEXT,
            "group_instance_id": st.none() | TEXT,
            "protocol_type": st.none() | TEXT,
            "protocol_name": st.none() | TEXT,
            "assignments": st.lists(st.fixed_dictionaries({"member_id": TEXT, "assignment": DATA}), max_size=4),
        }
    ),
    {
        "group_id": "group",
        "generation_id": 7,
        "member_id": "member",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": "a", "assignment": b"\1"}, {"member_id": "é", "assignment": b""}],
    },
)
HEARTBEAT = Api(
    ApiKey.HEARTBEAT,
    4,
    lambda version, body: said_by_heartbeat(read_heartbeat(version, body)),
    heartbeat_of_kio,
    st.fixed_dictionaries(
        {"group_id": TEXT, "generation_id": INT, "member_id": TEXT, "group_instance_id": st.none() | TEXT}
    ),
    {"group_id": "group", "generation_id": 7, "member_id": "member", "group_instance_id": "instance"},
)
VERSIONS = [
    pytest.param(api, version, id=f"{api.key.name}-v{version}")
    for api in (JOIN, SYNC, HEARTBEAT)
    for version in range(SERVED[api.key].lowest, SERVED[api.key].highest + 1)
]


def by_kio(api: Api, version: int, body: bytes) -> Said:
    """What kio reads behind its guard."""
    request_class = message_class(api.key, version, EntityType.request)
    read, _ = entity_reader(request_class)(checked(request_class, body), 0)
    return api.of_kio(read)


@pytest.mark.parametrize(("api", "version"), VERSIONS)
@effort(50)
@given(data=st.data())
def test_reads_what_kio_writes(api: Api, version: int, data: st.DataObject) -> None:
    body = request_body(api.key, version, data.draw(api.values))
    assert by_kio(api, version, body) == api.read(version, body)


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_every_cut_is_refused(api: Api, version: int) -> None:
    body = request_body(api.key, version, api.sample)
    for size in range(len(body)):
        with pytest.raises(ShapeError):
            api.read(version, body[:size])


@pytest.mark.parametrize(("api", "version"), VERSIONS)
@effort(100)
@given(data=st.data())
def test_damage_is_read_as_by_kio_or_refused_as_by_kio(api: Api, version: int, data: st.DataObject) -> None:
    body = bytearray(request_body(api.key, version, api.sample))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    expected: Said | None
    try:
        expected = by_kio(api, version, bytes(body))
    except (SerialError, ValueError, OverflowError, EOFError):
        expected = None
    found: Said | None
    try:
        found = api.read(version, bytes(body))
    except ValueError:
        found = None
    assert expected == found


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_unknown_tags_are_stepped_over(api: Api, version: int) -> None:
    body = request_body(api.key, version, api.sample)
    if version < api.flexible_from:
        # What follows the last field is not of the request.
        assert api.read(version, body) == api.read(version, body + b"\x01\x05\x02xy")
        return
    assert body.endswith(b"\0")
    assert api.read(version, body) == api.read(version, body[:-1] + b"\x02\x00\x02xy\x05\x00")


@pytest.mark.parametrize(("api", "version"), [each for each in VERSIONS if each.values[0] is not HEARTBEAT])
def test_arrays_may_not_have_too_many_elements(api: Api, version: int) -> None:
    """The last array of a request whose elements are as short as can be: as many as fit, and one more."""
    is_flexible = version >= api.flexible_from
    name = "assignments" if api is SYNC else "protocols"
    empty = request_body(api.key, version, {**api.sample, name: [], "reason": None})
    end = (b"\x00" if version >= 8 else b"") + b"\x00" if is_flexible else b""
    start = empty[: len(empty) - len(end) - (1 if is_flexible else 4)]
    element = b"\x01\x01\x00" if is_flexible else bytes(6)

    def body_of(count: int) -> bytes:
        size = unsigned_varint(count + 1) if is_flexible else count.to_bytes(4)
        return start + size + element * count + end

    assert empty == body_of(0)
    most = api.read(version, body_of(ELEMENTS_ALWAYS))
    assert (("", b""),) * ELEMENTS_ALWAYS in most
    with pytest.raises(ShapeError, match="more elements"):
        api.read(version, body_of(ELEMENTS_MAX + 1))
