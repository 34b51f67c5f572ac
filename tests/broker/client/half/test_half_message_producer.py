"""The half message producers on a real broker: local transactions, questions and answers."""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla import (
    AsyncConsumer,
    AsyncHalfMessageProducer,
    AsyncProducer,
    ConsumerRecord,
    HalfDecision,
    HalfMessage,
    HalfMessageProducer,
    OttlaError,
)
from ottla.broker.broker import Broker
from ottla.client.half.options import HalfMessageProducerOptions, half_message_producer_config
from ottla.client.options import OptionError
from ottla.client.serializers import NotPreparedError
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition
from ottla.model.queue_names import HALF_ID
from tests.broker.metric_samples import value_of
from tests.broker.running_broker import make_topic, running
from tests.waiting import PATIENCE_SECONDS, until

HALVES = TopicPartition("t.half", 0)
COMMIT, ROLLBACK, UNKNOWN = HalfDecision.COMMIT, HalfDecision.ROLLBACK, HalfDecision.UNKNOWN


@asynccontextmanager
async def serving_topic(folder: Path, **configs: str) -> AsyncIterator[tuple[Broker, str]]:
    """A broker with the topic `t`, which has half messages, and its address."""

    async with running(folder) as broker, asyncio.timeout(PATIENCE_SECONDS):
        checks = {"check_after_ms": "100", "check_interval_ms": "100", "check_max": "10000", **configs}
        settings = {f"ottla_half_{name}": value for name, value in checks.items()}
        await make_topic(broker, "t", 2, ottla_half_enable="true", **settings)
        yield broker, f"127.0.0.1:{broker.port}"


async def read(server: str, topic: str, count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    async with AsyncConsumer(topic, bootstrap_servers=server, group_id=None, auto_offset_reset="earliest") as consumer:
        async for record in consumer:
            found.append(record)
            if len(found) == count:
                break
    return found


def always(decision: HalfDecision) -> Callable[[HalfMessage], Awaitable[HalfDecision]]:
    async def decide(_: HalfMessage) -> HalfDecision:
        return decision

    return decide


def end_offset(broker: Broker, topic: str) -> int:
    return sum(partition.end_offset for partition in broker.partitions.of_topic(topic))


async def test_a_message_is_delivered_if_its_transaction_succeeded(tmp_path: Path) -> None:
    async with serving_topic(tmp_path, check_after_ms="60000") as (broker, server):
        seen: list[HalfMessage] = []

        async def execute(message: HalfMessage) -> HalfDecision:
            assert 0 == end_offset(broker, "t")
            seen.append(message)
            return COMMIT if message.value == {"order": 2} else ROLLBACK

        async with AsyncHalfMessageProducer(
            "t", execute, bootstrap_servers=server, value_serializer=lambda value: json.dumps(value).encode()
        ) as producer:
            gone = await producer.send({"order": 1}, b"k", [("colour", b"red")])
            sent = await producer.send({"order": 2}, b"k", [("colour", b"red")], id="two")
        assert [("two", COMMIT, True), (gone.id, ROLLBACK, True)] == [
            (each.id, each.decision, each.is_acknowledged) for each in (sent, gone)
        ]
        assert HalfMessage("two", "t", b"k", {"order": 2}, (("colour", b"red"),)) == seen[1]
        (found,) = await read(server, "t", 1)
        headers = dict(found.headers)
        assert (b"k", b'{"order": 2}', b"red", b"two") == (found.key, found.value, headers["colour"], headers[HALF_ID])
        assert sent.prepared.partition == found.partition
        assert 1 == end_offset(broker, "t")


async def test_a_serializer_may_add_headers_and_be_prepared_first(tmp_path: Path) -> None:
    class Numbered:
        def __init__(self) -> None:
            self.words: list[str] = []

        def serialize_record(self, topic: str, value: Any, is_key: bool) -> tuple[bytes, list[tuple[str, bytes]]]:
            assert not is_key
            if value not in self.words:
                raise NotPreparedError(lambda: self.words.append(value))
            return b"%d" % self.words.index(value), [("topic", topic.encode())]

        def deserialize_record(self, topic: str, headers: Any, data: bytes, is_key: bool) -> str:
            if not self.words:
                raise NotPreparedError(lambda: self.words.append("asked"))
            return f"{dict(headers)['topic'].decode()} {self.words[int(data)]}"

    async with serving_topic(tmp_path, check_after_ms="200") as (_broker, server):
        seen: list[Any] = []

        async def execute(message: HalfMessage) -> HalfDecision:
            return UNKNOWN

        async def check(message: HalfMessage) -> HalfDecision:
            seen.append(message.value)
            return COMMIT

        async with AsyncHalfMessageProducer(
            "t",
            execute,
            check,
            bootstrap_servers=server,
            group_id="g",
            value_serializer=Numbered(),
            value_deserializer=Numbered(),
        ) as producer:
            await producer.send("red", b"k", [("own", b"1")])
            (found,) = await read(server, "t", 1)
        assert (b"0", b"t", b"1") == (found.value, dict(found.headers)["topic"], dict(found.headers)["own"])
        assert {"t asked"} == set(seen)


async def test_questions_are_answered_until_there_is_a_decision(tmp_path: Path) -> None:
    async with serving_topic(tmp_path) as (broker, server):
        answers: dict[str, list[Any]] = {
            "late": [UNKNOWN, RuntimeError("planted"), "yes", COMMIT],
            "gone": [UNKNOWN, ROLLBACK],
        }
        asked: list[HalfMessage] = []
        is_answered = asyncio.Event()

        async def check(message: HalfMessage) -> HalfDecision:
            asked.append(message)
            if not answers[message.id]:
                return UNKNOWN
            answer = answers[message.id].pop(0)
            if not any(answers.values()):
                is_answered.set()
            if isinstance(answer, Exception):
                raise answer
            return answer  # type: ignore[no-any-return]

        async with AsyncHalfMessageProducer(
            "t",
            always(UNKNOWN),
            check,
            bootstrap_servers=server,
            group_id="g",
            value_deserializer=lambda value: value.decode(),
        ) as producer:
            result = await producer.send(b"1", b"a", [("colour", b"red")], id="late")
            assert (UNKNOWN, False) == (result.decision, result.is_acknowledged)
            await producer.send(b"2", b"b", id="gone")
            assert [b"1"] == [record.value for record in await read(server, "t", 1)]
            await is_answered.wait()
        late = [each for each in asked if each.id == "late"]
        counts = [each.checks for each in late]
        assert len(counts) >= 4
        assert list(range(1, len(counts) + 1)) == counts
        assert {("t", b"a", "1", (("colour", b"red"),))} == {
            (each.topic, each.key, each.value, tuple(each.headers)) for each in late
        }
        assert 1 == end_offset(broker, "t")


async def test_another_member_of_the_group_answers(tmp_path: Path) -> None:
    async with serving_topic(tmp_path) as (_broker, server):

        async def execute(_: HalfMessage) -> HalfDecision:
            raise RuntimeError("planted")

        async with AsyncHalfMessageProducer("t", execute, bootstrap_servers=server) as producer:
            with pytest.raises(RuntimeError, match="planted"):
                await producer.send(b"1")
        async with AsyncHalfMessageProducer(
            "t", always(UNKNOWN), always(COMMIT), bootstrap_servers=server, group_id="g"
        ):
            assert [b"1"] == [record.value for record in await read(server, "t", 1)]


async def test_strange_questions_are_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with serving_topic(tmp_path) as (_, server):
        async with AsyncProducer(bootstrap_servers=server) as plain:
            await plain.send_and_wait("t.half-checks", b"hello", partition=0)
        async with AsyncHalfMessageProducer(
            "t", always(UNKNOWN), always(COMMIT), bootstrap_servers=server, group_id="g"
        ) as producer:
            await producer.send(b"1", partition=0)
            await read(server, "t", 1)
        assert "t.half-checks-0, offset 0: not a check by the broker; skipped" in caplog.text


async def test_an_open_id_is_refused_before_anything_is_executed(tmp_path: Path) -> None:
    async with (
        serving_topic(tmp_path, check_after_ms="60000") as (_, server),
        AsyncHalfMessageProducer("t", always(UNKNOWN), bootstrap_servers=server) as producer,
    ):
        await producer.send(b"1", id="a", partition=0)
        with pytest.raises(OttlaError, match=r"ottla\.half\.id: 'a'"):
            await producer.send(b"2", id="a", partition=0, execute=always(COMMIT))


async def test_blocking_producers_execute_in_the_calling_thread(tmp_path: Path) -> None:
    async with serving_topic(tmp_path) as (_broker, server):

        def work() -> None:
            executed: list[int] = []
            is_asked = threading.Event()

            def execute(message: HalfMessage) -> HalfDecision:
                executed.append(threading.get_ident())
                return UNKNOWN if message.value == b"later" else COMMIT

            def check(message: HalfMessage) -> HalfDecision:
                assert threading.get_ident() != executed[0]
                is_asked.set()
                return COMMIT

            with HalfMessageProducer("t", execute, check, bootstrap_servers=server, group_id="g") as producer:
                assert COMMIT is producer.send(b"now", key=b"k").decision
                assert UNKNOWN is producer.send(b"later", key=b"k").decision
                assert ROLLBACK is producer.send(b"never", key=b"k", execute=lambda _: ROLLBACK).decision
                assert is_asked.wait(PATIENCE_SECONDS / 2)
            assert {threading.get_ident()} == set(executed)
            with pytest.raises(MisuseError, match="closed"):
                producer.send(b"x")
            producer.close()

        with ThreadPoolExecutor(1) as pool:
            await asyncio.get_running_loop().run_in_executor(pool, work)
        assert [b"now", b"later"] == [record.value for record in await read(server, "t", 2)]


async def test_close_waits_for_running_transactions(tmp_path: Path) -> None:
    async with serving_topic(tmp_path, check_after_ms="60000") as (_broker, server):
        is_running, may_end = asyncio.Event(), asyncio.Event()

        async def execute(_: HalfMessage) -> HalfDecision:
            is_running.set()
            await may_end.wait()
            return COMMIT

        producer = AsyncHalfMessageProducer("t", execute, bootstrap_servers=server)
        with pytest.raises(MisuseError, match="start"):
            await producer.send(b"x")
        await producer.start()
        sending = asyncio.create_task(producer.send(b"1"))
        await is_running.wait()
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        assert not closing.done()
        may_end.set()
        assert COMMIT is (await sending).decision
        await closing
        with pytest.raises(MisuseError, match="closed"):
            await producer.send(b"x")
        assert [b"1"] == [record.value for record in await read(server, "t", 1)]


async def test_decisions_do_not_wait_behind_messages_for_which_there_is_no_room(tmp_path: Path) -> None:
    async with serving_topic(tmp_path, check_after_ms="60000", open_max="1") as (broker, server):
        is_first_done = asyncio.Event()

        async def execute(message: HalfMessage) -> HalfDecision:
            if message.id == "first":
                await is_first_done.wait()
            return COMMIT

        async with AsyncHalfMessageProducer("t", execute, bootstrap_servers=server) as producer:
            first = asyncio.create_task(producer.send(b"1", partition=0, id="first"))
            await until(lambda: 1 == value_of(broker, "ottla_queue_parked_records", kind="half", topic="t.half"))
            second = asyncio.create_task(producer.send(b"2", partition=0, id="second"))
            await until(lambda: value_of(broker, "ottla_produce_failed_total") > 0)
            is_first_done.set()
            assert [True, True] == [each.is_acknowledged for each in (await first, await second)]
        assert [b"1", b"2"] == [each.value for each in await read(server, "t", 2)]


@pytest.mark.parametrize(
    ("options", "check", "problem"),
    [
        ({"acks": 1}, None, "acks"),
        ({"transactional_id": "x"}, None, "transactional_id"),
        ({"group_id": "g"}, None, "check and group_id"),
        ({}, always(COMMIT), "check and group_id"),
        ({"group_id": ""}, always(COMMIT), "group_id must not be empty"),
        ({"colour": "red"}, None, "no option colour"),
        ({"session_timeout_ms": 2}, None, "session_timeout_ms must be at least 3"),
    ],
)
async def test_options_that_do_not_fit_are_refused(options: dict[str, Any], check: Any, problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        AsyncHalfMessageProducer("t", always(COMMIT), check, **options)
    with pytest.raises(OptionError, match=problem):
        HalfMessageProducer("t", lambda _: COMMIT, check, **options)


def test_heartbeats_fit_the_session_timeout() -> None:
    def intervals(options: HalfMessageProducerOptions) -> tuple[int, int]:
        found = half_message_producer_config(options, has_check=True).consumer_options()
        return found["session_timeout_ms"], found["heartbeat_interval_ms"]

    assert (45_000, 3_000) == intervals({"group_id": "g"})
    assert (600, 200) == intervals({"group_id": "g", "session_timeout_ms": 600})
