"""Wrong arguments of public methods: one error class, a message that names the argument and the expected type."""

import asyncio
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from ottla import (
    Admin,
    AsyncAdmin,
    AsyncParallelConsumer,
    AsyncProducer,
    ConfigResource,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    ParallelConsumer,
    Producer,
    ResourceType,
)
from ottla.client.arguments import ArgumentError, check_fields, checks_arguments, mismatch
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition


@pytest.fixture(scope="module")
def admin() -> Iterator[Admin]:
    """Never connects: arguments are checked before anything is asked."""
    with Admin(bootstrap_servers="127.0.0.1:1") as admin:
        yield admin


T0 = TopicPartition("t", 0)
WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("create_topics", ("orders",), {}, "new_topics must be a list of NewTopic, not str 'orders'"),
    ("create_topics", (["orders"],), {}, "new_topics[0] must be NewTopic, not str 'orders'"),
    ("create_topics", (NewTopic("t"),), {}, "new_topics must be a list of NewTopic, not NewTopic NewTopic(name='t'"),
    ("create_topics", (None,), {}, "new_topics must be a list of NewTopic, not None"),
    ("create_topics", ([],), {"timeout_ms": "5"}, "timeout_ms must be int or None, not str '5'"),
    ("create_topics", ([],), {"validate_only": "no"}, "validate_only must be bool, not str 'no'"),
    ("create_topics", ((name for name in ["a"]),), {}, "new_topics[0] must be NewTopic, not str 'a'"),
    ("wait_for_topics", ("t",), {}, "topics must be a list of str, not str 't'; write ['t']"),
    ("delete_topics", ("t",), {}, "topics must be a list of str, not str 't'; write ['t']"),
    ("delete_topics", ([5],), {}, "topics[0] must be str, not int 5"),
    ("describe_topics", (5,), {}, "topics must be a list of str or None, not int 5"),
    ("describe_topics", ([b"t"],), {}, "topics[0] must be str, not bytes b't'"),
    ("create_partitions", ({"t": "3"},), {}, "topic_partitions['t'] must be NewPartitions or int, not str '3'"),
    ("create_partitions", (["t"],), {}, "topic_partitions must be a dict of str to NewPartitions or int, not list"),
    ("describe_configs", (["t"],), {}, "config_resources[0] must be ConfigResource, not str 't'"),
    (
        "alter_configs",
        (ConfigResource(ResourceType.TOPIC, "t"),),
        {},
        "config_resources must be a list of ConfigResource, not ConfigResource ConfigResource(",
    ),
    ("list_config_resources", (["topic"],), {}, "resource_types[0] must be ResourceType, not str 'topic'"),
    ("delete_records", ({("t", 0): 5},), {}, "a key of records_to_delete must be TopicPartition, not tuple ('t', 0)"),
    ("delete_records", ({T0: "5"},), {}, "records_to_delete[TopicPartition(topic='t', partition=0)] must be int"),
    ("list_offsets", ({TopicPartition("t", "0"): 0},), {}, "a key of topic_partitions.partition must be int"),  # type: ignore[arg-type]
    ("list_offsets", ([T0],), {}, "topic_partitions must be a dict of TopicPartition to OffsetSpec or int, not list"),
    ("elect_leaders", ("PREFERRED",), {}, "election_type must be ElectionType, not str 'PREFERRED'"),
    ("elect_leaders", (), {"topic_partitions": [("t", 0)]}, "topic_partitions[0] must be TopicPartition, not tuple"),
    ("elect_leaders", (), {"topic_partitions": T0}, "write [TopicPartition(topic='t', partition=0)]"),
    ("alter_partition_reassignments", ({T0: 1},), {}, "must be a list of int or None, not int 1; write [1]"),
    ("list_partition_reassignments", (["t"],), {}, "topic_partitions[0] must be TopicPartition, not str 't'"),
    ("describe_log_dirs", (0,), {}, "brokers must be a list of int or None, not int 0; write [0]"),
    ("alter_replica_log_dirs", (0, {"t": "/two"}), {}, "a key of moves must be TopicPartition, not str 't'"),
    ("update_features", (["group.version"],), {}, "levels must be a dict of str to int, not list"),
    ("unregister_broker", ("1",), {}, "broker must be int, not str '1'"),
    ("list_consumer_groups", ("Stable",), {}, "states_filter must be a list of str, not str 'Stable'"),
    ("describe_consumer_groups", ("g",), {}, "group_ids must be a list of str, not str 'g'; write ['g']"),
    ("delete_consumer_groups", ([None],), {}, "group_ids[0] must be str, not None"),
    ("remove_consumer_group_members", (["g"],), {}, "group_id must be str, not list ['g']"),
    ("remove_consumer_group_members", ("g", ["m"]), {}, "members[0] must be MemberToRemove, not str 'm'"),
    ("list_consumer_group_offsets", (5,), {}, "group_id must be str, not int 5"),
    ("alter_consumer_group_offsets", ("g", {"t": 3}), {}, "a key of offsets must be TopicPartition, not str 't'"),
    ("delete_consumer_group_offsets", ("g", "t"), {}, "partitions must be a list of TopicPartition, not str 't'"),
    ("list_groups", ("Stable",), {}, "states_filter must be a list of str, not str 'Stable'"),
    ("describe_share_groups", ("g",), {}, "group_ids must be a list of str, not str 'g'; write ['g']"),
    ("list_share_group_offsets", (5,), {}, "group_id must be str, not int 5"),
    ("alter_share_group_offsets", ("g", {"t": 3}), {}, "a key of offsets must be TopicPartition, not str 't'"),
    ("delete_share_group_offsets", ("g", "t"), {}, "topics must be a list of str, not str 't'; write ['t']"),
    ("delete_share_groups", ([None],), {}, "group_ids[0] must be str, not None"),
    ("describe_streams_groups", ("g",), {}, "group_ids must be a list of str, not str 'g'; write ['g']"),
    ("list_transactions", ("Ongoing",), {}, "state_filters must be a list of str, not str 'Ongoing'"),
    ("describe_transactions", ("id",), {}, "transactional_ids must be a list of str, not str 'id'; write ['id']"),
    ("describe_producers", (["t"],), {}, "partitions[0] must be TopicPartition, not str 't'"),
    ("find_hanging_transactions", ("t",), {}, "partitions must be a list of TopicPartition or None, not str 't'"),
    ("abort_transaction", ("t", 3), {}, "partition must be TopicPartition, not str 't'"),
    ("abort_transaction", (T0, "3"), {}, "start_offset must be int, not str '3'"),
    ("create_acls", (["User:a"],), {}, "acls[0] must be ACL, not str 'User:a'"),
    ("describe_acls", ("User:a",), {}, "acl_filter must be ACLFilter or None, not str 'User:a'"),
    ("delete_acls", (["User:a"],), {}, "acl_filters[0] must be ACLFilter, not str 'User:a'"),
    ("describe_user_scram_credentials", ("ada",), {}, "users must be a list of str or None, not str 'ada'"),
    ("alter_user_scram_credentials", (["ada"],), {}, "alterations[0] must be "),
    ("describe_client_quotas", (["user"],), {}, "components must be a dict of str to str or None"),
    ("alter_client_quotas", ({"ada": {}},), {}, "a key of alterations must be QuotaEntity, not str 'ada'"),
    ("create_delegation_token", ("User:a",), {}, "renewers must be a list of str, not str 'User:a'"),
    ("renew_delegation_token", ("secret",), {}, "hmac must be bytes, not str"),
    ("expire_delegation_token", ("secret",), {}, "hmac must be bytes, not str"),
    ("describe_delegation_token", ("User:a",), {}, "owners must be a list of str or None, not str 'User:a'"),
]


@pytest.mark.parametrize(("name", "args", "kwargs", "sentence"), WRONG, ids=range(len(WRONG)))
def test_admin(admin: Admin, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ArgumentError) as refusal:
        getattr(admin, name)(*args, **kwargs)
    assert f"{name}: " == str(refusal.value)[: len(name) + 2]
    assert sentence in str(refusal.value)
    assert isinstance(refusal.value, MisuseError)
    assert isinstance(refusal.value, TypeError)


def test_every_method_of_the_admin_that_takes_arguments_is_tried() -> None:
    takes_arguments = {
        name
        for name, method in inspect.getmembers(AsyncAdmin, inspect.isfunction)
        if not name.startswith("_") and len(inspect.signature(method).parameters) > 1
    }
    assert takes_arguments == {name for name, *_ in WRONG}


def test_a_missing_argument_is_named_by_python_itself(admin: Admin) -> None:
    with pytest.raises(TypeError, match=r"create_topics\(\) missing 1 required positional argument: 'new_topics'"):
        admin.create_topics()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: NewTopic(5), "NewTopic.name must be str, not int 5"),  # type: ignore[arg-type]
        (lambda: NewTopic("t", "3"), "NewTopic.num_partitions must be int, not str '3'"),  # type: ignore[arg-type]
        (
            lambda: NewTopic("t", topic_configs={"retention.ms": 5}),  # type: ignore[dict-item]
            "NewTopic.topic_configs['retention.ms'] must be str, not int 5",
        ),
        (lambda: NewPartitions("3"), "NewPartitions.total_count must be int, not str '3'"),  # type: ignore[arg-type]
        (
            lambda: NewPartitions(3, [1]),  # type: ignore[list-item]
            "NewPartitions.new_assignments[0] must be a list of int, not int 1; write [1]",
        ),
        (
            lambda: ConfigResource("topic", "t"),  # type: ignore[arg-type]
            "ConfigResource.resource_type must be ResourceType, not str 'topic'",
        ),
        (
            lambda: ConfigResource(7, "t"),  # type: ignore[arg-type]
            "ConfigResource.resource_type must be ResourceType, not int 7",
        ),
        (
            lambda: ConfigResource(True, "t"),  # type: ignore[arg-type]
            "ConfigResource.resource_type must be ResourceType, not bool True",
        ),
        (
            lambda: ConfigResource(ResourceType.TOPIC, "t", "retention.ms"),
            "write ['retention.ms']",
        ),
        (lambda: MemberToRemove(5), "MemberToRemove.member_id must be str, not int 5"),  # type: ignore[arg-type]
    ],
)
def test_values_for_the_admin(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ArgumentError) as refusal:
        make()
    assert sentence in str(refusal.value)


def test_a_resource_type_may_be_its_number() -> None:
    by_number = ConfigResource(2, "t")  # type: ignore[arg-type]
    assert (ConfigResource(ResourceType.TOPIC, "t"), "TOPIC") == (by_number, by_number.resource_type.name)


PRODUCER_WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("send", (5,), {}, "topic must be str, not int 5"),
    ("flush", ("5",), {}, "flush: timeout must be float or None, not str '5'"),
    ("close", ("5",), {}, "close: timeout must be float or None, not str '5'"),
    ("partitions_for", (5,), {}, "partitions_for: topic must be str, not int 5"),
    ("send_offsets_to_transaction", ([T0], "g"), {}, "offsets must be a dict of TopicPartition to OffsetAndMetadata"),
    ("send_offsets_to_transaction", ({T0: 5}, "g"), {}, "must be OffsetAndMetadata, not int 5"),
    ("send_offsets_to_transaction", ({}, 5), {}, "group_metadata must be ConsumerGroupMetadata or str, not int 5"),
    ("send_table", (5, None), {}, "send_table: topic must be str, not int 5"),
    ("send_table", ("t", [1]), {}, "table must be a pyarrow Table, RecordBatch or RecordBatchReader, not list [1]"),
    ("send_table", ("t", None), {"key": 5}, "send_table: key must be str, not int 5"),
]


@pytest.mark.parametrize(("name", "args", "kwargs", "sentence"), PRODUCER_WRONG, ids=range(len(PRODUCER_WRONG)))
async def test_producers(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], sentence: str) -> None:
    with Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=0) as producer:
        with pytest.raises(ArgumentError) as refusal:
            getattr(producer, name)(*args, **kwargs)
        assert sentence in str(refusal.value)
    async with AsyncProducer(bootstrap_servers="127.0.0.1:1", max_block_ms=0) as asynchronous:
        with pytest.raises(ArgumentError) as refusal:
            await getattr(asynchronous, name)(*args, **kwargs)
        assert sentence in str(refusal.value)


async def test_parallel_consumers() -> None:
    with pytest.raises(ArgumentError, match=r"topics\[0\] must be str, not list \['t'\]"):
        ParallelConsumer(["t"], group_id="g")  # type: ignore[arg-type]
    with (
        ParallelConsumer("t", group_id="g", bootstrap_servers="127.0.0.1:1") as consumer,
        pytest.raises(ArgumentError, match="run: handler must be a callable, not str 'print'"),
    ):
        consumer.run("print")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="pattern must be str or None, not int 5"):
        AsyncParallelConsumer(pattern=5, group_id="g")  # type: ignore[arg-type]


async def test_a_closed_admin_raises_the_same_as_blocking_and_as_asyncio_class() -> None:
    expected = "the admin client is closed; create a new one"
    blocking = Admin(bootstrap_servers="127.0.0.1:1")
    blocking.close()
    with pytest.raises(MisuseError) as refusal:
        blocking.list_topics()
    assert expected == str(refusal.value)
    admin = AsyncAdmin(bootstrap_servers="127.0.0.1:1")
    await admin.close()
    with pytest.raises(MisuseError) as refusal:
        await admin.list_topics()
    assert expected == str(refusal.value)


# The mechanism


@dataclass(frozen=True)
class Point:
    x: int
    names: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_fields(self)


@checks_arguments(skip=("quick",))
class Client:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def take(self, names: Iterable[str], *, mode: Literal["a", "b"] = "a") -> list[str]:
        """Takes names."""
        return [*names, mode]

    def quick(self, number: int) -> int:
        return number

    async def later(self, *numbers: int) -> int:
        return sum(numbers)


def test_what_fits_is_passed_on() -> None:
    client = Client()
    assert ["x", "y", "b"] == client.take(iter(["x", "y"]), mode="b")
    assert "unchecked" == client.quick("unchecked")  # type: ignore[arg-type]
    assert 6 == asyncio.run(client.later(1, 2, 3))
    assert inspect.iscoroutinefunction(Client.later)
    assert "Takes names." == Client.take.__doc__


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"^take: names\[1\] must be str, not int 5$"):
        Client().take(iter(["x", 5]))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"^take: mode must be one of 'a', 'b', not str 'c'$"):
        Client().take([], mode="c")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"^later: numbers must be int, not bool True$"):
        asyncio.run(Client().later(1, True))
    with pytest.raises(ArgumentError, match=r"^Point.names must be a list of str, not str 'ab'; write \['ab'\]$"):
        Point(1, "ab")


@pytest.mark.parametrize(
    ("hint", "value", "sentence"),
    [
        (int, True, "x must be int, not bool True"),
        (float, 3, None),
        (Collection[int], {1, 2}, None),
        (Mapping[str, Sequence[int] | None], {"a": None, "b": [1]}, None),
        (Mapping[str, Sequence[int] | None], {"a": ["b"]}, "x['a'][0] must be int, not str 'b'"),
        (str | Sequence[str], ["a", 1], "x[1] must be str, not int 1"),
        (Callable[[int], int], 5, "x must be a callable, not int 5"),
        (int | None, "y" * 100, f"x must be int or None, not str '{'y' * 76}..."),
        (Any, object(), None),
    ],
)
def test_mismatch(hint: Any, value: object, sentence: str | None) -> None:
    assert sentence == mismatch(hint, value, "x")
