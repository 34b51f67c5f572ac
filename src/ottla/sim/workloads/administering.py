"""An admin client: creates, deletes and extends topics, moves replicas, elects leaders."""

from ottla.client.admin.replica_requests import ElectionType
from ottla.client.admin.values import NewPartitions, NewTopic
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.sim.simulated_world import SimulatedWorld

DEEDS = ("create", "delete", "grow", "move", "elect")


async def administer(world: SimulatedWorld, name: str, topics: list[str], deeds: list[str]) -> None:
    """Does one of the deeds now and then, until the faults end."""
    client, history, random = world.client(name), world.history, world.random.fork()
    made: list[str] = []
    count = 0
    brokers = [each.id for each in world.machines]
    while not world.is_calm:
        await client.clock.sleep(1 + 4 * random.random())
        deed = deeds[random.randrange(len(deeds))]
        admin = client.admin()
        try:
            if deed == "create":
                count += 1
                made.append(f"made-{count}")
                await admin.create_topics([NewTopic(made[-1], 2, 3)])
            elif deed == "delete" and made:
                topic = made.pop(random.randrange(len(made)))
                history.deleted.add(topic)
                await admin.delete_topics([topic])
            elif deed == "grow" and made:
                await admin.create_partitions({made[-1]: NewPartitions(3)})
            elif deed == "move":
                topic = topics[random.randrange(len(topics))]
                start = random.randrange(len(brokers))
                replicas = [*brokers[start:], *brokers[:start]][: 2 + random.randrange(2)]
                history.moved.add(TopicPartition(topic, 0))
                await admin.alter_partition_reassignments({TopicPartition(topic, 0): replicas})
            elif deed == "elect":
                await admin.elect_leaders(ElectionType.PREFERRED, None, raise_errors=False)
            history.note(f"{name}: {deed} succeeded")
        except OttlaError as error:
            history.note(f"{name}: {deed} failed: {type(error).__name__}")
        history.fault_counts[f"admin: {deed}"] += 1
        await admin.close()
