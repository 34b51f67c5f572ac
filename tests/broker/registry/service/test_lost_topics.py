"""What a disk or an operator may do to the topic: damaged batches, an older copy. No id twice, nothing in silence."""

import asyncio
import shutil
from pathlib import Path

import pytest

from ottla.registry.service.schemas_topic import SchemasTopicLostError
from ottla.registry.state.record_formats import Record, SchemaKey, SchemaValue
from ottla.testing import InProcessBroker
from tests.broker.registry.service.instances import ORDER, ORDER_2, Started, record, served

PARTITION = "_schemas-0"


def segment(folder: Path) -> Path:
    (found,) = folder.rglob(f"{PARTITION}/*.log")
    return found


async def until_lost(one: Started) -> str:
    while one.registry.problem is None:
        await one.registry.wait_change()
    return one.registry.problem


async def test_a_damaged_batch_keeps_a_registry_from_starting(tmp_path: Path) -> None:
    with InProcessBroker(tmp_path) as broker:
        async with served(broker.bootstrap) as one:
            for number in range(3):
                await one.call("POST", f"/subjects/s{number}/versions", record(f"R{number}"))
        broker.stop()
        data = bytearray(segment(tmp_path).read_bytes())
        data[100] ^= 0xFF
        segment(tmp_path).write_bytes(data)
        broker.restart()
        with pytest.raises(SchemasTopicLostError, match=r"_schemas.*damaged"):
            async with served(broker.bootstrap):
                pass


async def test_an_older_copy_of_the_log_is_noticed(tmp_path: Path) -> None:
    """A backup was restored: ids that were given are missing from the log."""
    with InProcessBroker(tmp_path) as broker:
        async with served(broker.bootstrap) as one:
            assert 1 == (await one.call("POST", "/subjects/s/versions", ORDER))["id"]
            await asyncio.to_thread(broker.stop)
            folder = segment(tmp_path).parent
            shutil.copytree(folder, tmp_path.parent / f"{tmp_path.name}-copy")
            await asyncio.to_thread(broker.restart)
            assert 2 == await one.register("s", ORDER_2)
            await asyncio.to_thread(broker.stop)
            shutil.rmtree(folder)
            shutil.copytree(tmp_path.parent / f"{tmp_path.name}-copy", folder)
            await asyncio.to_thread(broker.restart)
            # A new instance reads what is left and does not lead; nor does a leader that is elected again.
            async with served(broker.bootstrap) as new:
                assert "damaged" in await until_lost(new)
                assert [1] == await new.call("GET", "/subjects/s/versions")
                assert (500, 50001) == await new.error("POST", "/subjects/t/versions", record("Other"))
            # If the brokers were away for longer than its session, it was elected again by now.
            if one.registry.leadership is not None:
                one.registry.leadership._fail("a reason to be elected again")
            assert "_schemas" in await until_lost(one)
            assert (500, 50001) == await one.error("POST", "/subjects/t/versions", record("Other"))
            # What was read before is still answered.
            assert [1, 2] == await one.call("GET", "/subjects/s/versions")


async def test_a_log_that_lost_its_end_is_noticed_by_what_was_read_before(ottla_broker: InProcessBroker) -> None:
    """As after an unclean election on Kafka: the log has other records at offsets that were read before."""
    async with served(ottla_broker.bootstrap) as one:
        assert 1 == (await one.call("POST", "/subjects/s/versions", ORDER))["id"]
        assert one.registry.leadership is not None
        # The instance remembers a version that the log does not have.
        key = SchemaKey("s", 2)
        value = SchemaValue(subject="s", version=2, id=2, schema='"int"', deleted=False)
        one.registry.image.apply(Record(key, value), 0)
        one.registry.leadership._fail("a reason to be elected again")
        assert "version 2 of subject 's'" in await until_lost(one)
        assert (500, 50001) == await one.error("POST", "/subjects/t/versions", record("Other"))
