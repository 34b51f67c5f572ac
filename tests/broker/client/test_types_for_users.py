"""A user's program in mypy's strict mode, against the wheel as it is installed: every argument and answer is known.

The wheel is built without its compiled kernels, whose types are in files beside them: what is packed is the same.
"""

import re
import shutil
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.processes import run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]

GOOD = """
import asyncio
from typing import Any, assert_type

from ottla import (
    Admin, AsyncAdmin, AsyncConsumer, AsyncParallelConsumer, AsyncProducer, AsyncRangeReader, Consumer,
    ConsumerRebalanceListener, ConsumerRecord, Delivery, NewTopic, OffsetAndMetadata, ParallelConsumer, Producer,
    ProducerInterceptor, ProducerRecord, RangeReader, RecordMetadata, RejectRecordError, TopicPartition,
)


class Watching(ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked: Any) -> None:
        print(revoked)


class Stamping(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record


def produce() -> None:
    with Producer(bootstrap_servers="localhost:9092", acks="all", linger_ms=5, compression_type="zstd",
                  interceptors=[Stamping()], key_serializer=str.encode) as producer:
        delivery = producer.send("t", b"v", key="k", headers=[("h", b"1")], partition=0, timestamp_ms=5)
        assert_type(delivery, Delivery)
        assert_type(delivery.get(timeout=1.0), RecordMetadata)
        assert_type(delivery.result(1.0), RecordMetadata)
        assert_type(delivery.exception(), Exception | None)
        delivery.add_done_callback(lambda done: print(done.done()))
        assert_type(producer.partitions_for("t"), set[int])
        producer.flush(5)


def transact() -> None:
    with Producer(bootstrap_servers=["localhost:9092"], transactional_id="id") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({TopicPartition("t", 0): OffsetAndMetadata(5)}, "group")
        producer.commit_transaction()


def consume() -> None:
    with Consumer("t", bootstrap_servers="localhost:9092", group_id="g", group_protocol="consumer",
                  auto_offset_reset="earliest", value_deserializer=bytes.decode) as consumer:
        consumer.subscribe(pattern="t.*", listener=Watching())
        for record in consumer:
            assert_type(record, ConsumerRecord)
        assert_type(consumer.poll(100), dict[TopicPartition, list[ConsumerRecord]])
        assert_type(consumer.position(TopicPartition("t", 0)), int)
        consumer.commit({TopicPartition("t", 0): OffsetAndMetadata(5)})


def administrate() -> None:
    with Admin(bootstrap_servers="localhost:9092") as admin:
        admin.create_topics([NewTopic("t", num_partitions=3, replication_factor=1)])
        assert_type(admin.list_topics(), list[str])


def handle(record: ConsumerRecord) -> None:
    raise RejectRecordError("no")


def handle_many() -> None:
    with ParallelConsumer("t", bootstrap_servers="localhost:9092", group_id="g", workers=4) as consumer:
        consumer.run(handle)
    with RangeReader("t", 0, start=0, end=9, bootstrap_servers="localhost:9092") as reader:
        print(sum(batch.num_rows for batch in reader))


async def everything() -> None:
    async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
        delivery = await producer.send("t", b"v")
        assert_type(await delivery, RecordMetadata)
        assert_type(await producer.send_and_wait("t", b"v"), RecordMetadata)
    async with AsyncConsumer("t", bootstrap_servers="localhost:9092") as consumer:
        async for record in consumer:
            assert_type(record, ConsumerRecord)
    async with AsyncAdmin(bootstrap_servers="localhost:9092") as admin:
        assert_type(await admin.list_topics(), list[str])
    async with AsyncRangeReader("t", 0, bootstrap_servers="localhost:9092") as reader:
        async for batch in reader:
            print(batch.num_rows)

    async def work(record: ConsumerRecord) -> None:
        print(record.offset)

    async with AsyncParallelConsumer("t", bootstrap_servers="localhost:9092", group_id="g") as parallel:
        await parallel.run(work)


asyncio.run(everything())
"""

BAD = """
from ottla import Admin, Consumer, Producer

Producer(bootstrap_servers="a:1", linger_msec=5)
Producer(bootstrap_servers="a:1", acks="every")
Consumer("t", bootstrap_servers="a:1", group_id=5)
Consumer("t", bootstrap_servers="a:1").poll("soon")
Admin(bootstrap_servers="a:1").create_topics("t")
Producer(bootstrap_servers="a:1").send(5, b"x")
"""
CODES = ["call-arg", "arg-type", "arg-type", "arg-type", "arg-type", "arg-type"]


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has nothing but the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(
        ROOT / "src/ottla", folder / "src/ottla", ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__")
    )
    (folder / "setup.py").write_text("from setuptools import setup\nsetup()\n")
    build = [sys.executable, "-c", "import setuptools.build_meta as it; print(it.build_wheel('.'))"]
    wheel = folder / run(build, folder=folder).stdout.split()[-1]
    home = folder / "home"
    venv.create(home)
    (packages,) = home.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as packed:
        assert {"ottla/py.typed", "ottla/client/producer/batching/deliveries.pyi"} <= set(packed.namelist())
        packed.extractall(packages)
    return home / "bin/python"


def checked(interpreter: Path, folder: Path, program: str) -> list[str]:
    """What mypy finds."""
    file = folder / "user_program.py"
    file.write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--python-executable", str(interpreter)]
    command += ["--cache-dir", str(interpreter.parent / "cache"), "--config-file", "", file.name]
    done = run(command, status=None, folder=folder)
    assert "" == done.stderr
    return done.stdout.splitlines()


def test_every_argument_and_answer_is_known(interpreter: Path, tmp_path: Path) -> None:
    assert [] == checked(interpreter, tmp_path, GOOD)


def test_mistakes_are_found(interpreter: Path, tmp_path: Path) -> None:
    found = [line for line in checked(interpreter, tmp_path, BAD) if ": error:" in line]
    expected = [f"{line}: {code}" for line, code in enumerate(CODES, start=4)]
    assert expected == [re.sub(r"^user_program\.py:(\d+): .*\[(.*)\]$", r"\1: \2", line) for line in found]
