"""A leader whose disk wrote two batches to the wrong places: no follower copies them, and another replica leads."""

from itertools import pairwise
from pathlib import Path

from ottla.records.batch import scan
from tests.broker.replicated import ReplicatedBrokers
from tests.broker.test_replication import read_all

VALUES = [b"value %04d" % number for number in range(300)]


def exchange_two_batches(path: Path) -> None:
    """Exchanges the first two neighbours of the same size behind the first batch."""
    content = path.read_bytes()
    batches, _, _ = scan(content)
    for first, second in pairwise(batches[1:]):
        if first.size_bytes == second.size_bytes:
            size = first.size_bytes
            one, other = (content[each.position : each.position + size] for each in (first, second))
            with path.open("r+b") as file:
                file.seek(first.position)
                file.write(other + one)
            return
    raise AssertionError("no two batches of the same size")


async def test_a_follower_that_was_away(tmp_path: Path) -> None:
    async with ReplicatedBrokers(tmp_path) as brokers:
        await brokers.make_topic("t", replicas=3)
        leader = brokers.leader("t")
        away = next(number for number in brokers.brokers if number != leader)
        await brokers.stop(away)
        for value in VALUES[:20]:
            await brokers.send("t", [value])
        await brokers.send("t", VALUES[20:])
        (path,) = (brokers.data(leader) / "t-0").glob("*.log")
        exchange_two_batches(path)
        await brokers.start(away)
        await brokers.wait(lambda: brokers.leader("t") != leader)
        await brokers.wait_in_sync("t")
        assert VALUES == await read_all(brokers, "t", len(VALUES))
        contents = brokers.contents("t")
        assert 1 == len(set(contents.values()))
