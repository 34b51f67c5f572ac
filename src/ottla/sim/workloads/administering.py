"""An administrator at work: topics come and go, grow, and move between brokers; leaders are elected."""

from ottla.client.admin.partition_moves import ElectionType
from ottla.client.admin.values import NewPartitions, NewTopic
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.sim.life import Life

DEEDS = ("create", "delete", "grow", "move", "elect")


async def administer(life: Life, name: str, topics: list[str], deeds: list[str]) -> None:
    """Does one of the deeds now and then, until the faults end."""
    client, history, random = life.client(name), life.history, life.random.fork()
    made: list[str] = []
    count = 0
    brokers = [each.id for each in life.machines]
    while not life.is_calm:
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
            history.note(f"{name}: {deed} is done")
        except OttlaError as error:
            history.note(f"{name}: {deed} fails: {type(error).__name__}")
        history.fault_counts[f"admin: {deed}"] += 1
        await admin.close()
