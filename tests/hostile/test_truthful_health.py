"""A broker process that cannot create a partition, and one with a corrupt log: what the command line says of them."""

import subprocess
from datetime import timedelta
from pathlib import Path

from ottla.protocol.apis import ApiKey
from tests.broker_process import BrokerProcess
from tests.hostile.batches import numbered_batch
from tests.processes import OTTLA, run
from tests.waiting import wait_until
from tests.wire.exchange import RawConnection
from tests.wire.world import create_topic, produce


def ottla(broker: BrokerProcess, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A command that must end by itself."""
    return run([*OTTLA, *arguments, "--bootstrap", broker.address], status=None)


def test_a_partition_that_could_not_be_created_is_reported_and_comes_back(tmp_path: Path) -> None:
    """A file stands where its folder should be, so that it fails until the file is removed."""
    with BrokerProcess(tmp_path) as broker, RawConnection(broker.address) as connection:
        obstacle = broker.data / "t-1"
        obstacle.write_text("in the way")
        wish = {"name": "t", "num_partitions": 3, "replication_factor": 1}
        answer = connection.ask_newest(ApiKey.CREATE_TOPICS, {"topics": [wish], "timeout": timedelta(seconds=10)})
        topic_id = answer.topics[0].topic_id
        sick = ottla(broker, "cluster", "health")
        assert 1 == sick.returncode, sick
        assert "partition t-1 is offline on broker 0" in sick.stdout
        assert "cannot create the partition: File exists" in sick.stdout
        obstacle.unlink()
        wait_until(lambda: ottla(broker, "cluster", "health").returncode == 0, "every partition is served")
        assert [0] * 3 == [produce(connection, topic_id, numbered_batch(0), index) for index in range(3)]
        broker.stop()


def test_a_corrupt_batch_ends_a_consumer_with_an_error(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        with RawConnection(broker.address) as connection:
            topic_id = create_topic(connection, "t", 1, retention_ms="-1")
            for number in range(10):
                produce(connection, topic_id, numbered_batch(number))
        broker.stop()
        (path,) = (broker.data / "t-0").glob("*.log")
        content = bytearray(path.read_bytes())
        content[content.index(b"record 4")] ^= 0xFF
        path.write_bytes(content)
        broker.start()
        ended = ottla(broker, "consume", "t", "--from", "beginning")
        assert ended.returncode not in (0, None)
        assert [f"record {number}" for number in range(4)] == [
            " ".join(line.split()[:2]) for line in ended.stdout.splitlines()
        ]
        assert "partition t-0" in ended.stderr
        assert "offset 4" in ended.stderr
        assert "--from" in ended.stderr
        assert "Traceback" not in ended.stderr
        sick = ottla(broker, "cluster", "health")
        assert (1, True) == (sick.returncode, "the next offset is 5" in sick.stdout)
        rest = ottla(broker, "consume", "t", "--from", "5", "--until", "end")
        assert (0, 5) == (rest.returncode, len(rest.stdout.splitlines()))
        assert 1 == broker.log().count("corrupt batch in the log")
        broker.stop()
