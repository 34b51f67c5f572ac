"""Changes of topics: create, add partitions, configure, delete, delete records. Each passes through `Access.change`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.client.admin.config_requests import ResourceType
from ottla.client.admin.values import ConfigResource, NewTopic
from ottla.console.cluster.access import Access
from ottla.console.errors import InvalidFormError
from ottla.console.services.topics import forget_start_offsets, topic_view
from ottla.model.ids import TopicPartition
from ottla.operations.position_offsets import resolve
from ottla.operations.positions import parse_position

BROKER_DEFAULT: Final = -1
_POINT: Final = re.compile(r"([0-9]{1,9}),([0-9]{1,18})")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicForm:
    """A topic to create; a count of -1 is the broker's default."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def new_topic(self) -> NewTopic:
        """What the admin takes."""
        return NewTopic(self.name, self.partitions, self.replication_factor, topic_configs=self.configs)

    def words(self) -> list[str]:
        """The words of the command that does the same."""
        found = ["topics", "create", self.name]
        if self.partitions != BROKER_DEFAULT:
            found += ["--partitions", str(self.partitions)]
        if self.replication_factor != BROKER_DEFAULT:
            found += ["--replication-factor", str(self.replication_factor)]
        for name, value in self.configs.items():
            found += ["--config", f"{name}={value}"]
        return found


def parse_configs(text: str) -> dict[str, str]:
    """Configs, one `name=value` in each line. Raises `InvalidFormError`."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, separator, value = line.partition("=")
        if not separator or not name.strip():
            raise InvalidFormError(
                f"configs: {line[:80]!r} is not a config; write one in each line, as name=value", "configs"
            )
        found[name.strip()] = value.strip()
    return found


async def check_topic(access: Access, form: TopicForm) -> str:
    """What creating the topic would do, in a sentence. Raises what the broker would refuse."""
    created = (await access.admin().create_topics([form.new_topic], validate_only=True))[form.name]
    partitions = "1 partition" if created.partitions == 1 else f"{created.partitions} partitions"
    replicas = "1 replica" if created.replication_factor == 1 else f"{created.replication_factor} replicas"
    return f"Creates topic {form.name} with {partitions}, {replicas} each."


async def create_topic(access: Access, form: TopicForm) -> None:
    """Creates a topic and waits until it has leaders."""
    details = {
        "partitions": form.partitions,
        "replication_factor": form.replication_factor,
        "configs": dict(form.configs),
    }
    async with access.change("create topic", form.name, details):
        await access.admin().create_topics([form.new_topic], wait_for_metadata=True)


async def add_partitions(access: Access, name: str, count: int) -> None:
    """Adds partitions, up to `count` in all."""
    async with access.change("add partitions to topic", name, {"partitions": count}):
        await access.admin().create_partitions({name: count})
        await access.admin().wait_for_topics([name])


async def set_config(access: Access, name: str, config: str, value: str | None) -> None:
    """Sets one config; None removes the override."""
    async with access.change("configure topic", name, {config: value}):
        await access.admin().alter_configs([ConfigResource(ResourceType.TOPIC, name, {config: value})])


async def delete_topic(access: Access, name: str, topic_id: str = "") -> None:
    """Deletes a topic with all its records, if it is the one with this id; "" for any."""
    async with access.change("delete topic", name):
        await check_id(access, name, topic_id)
        await access.admin().delete_topics([name])


async def check_id(access: Access, name: str, topic_id: str) -> None:
    """Raises `InvalidFormError` if the topic was deleted and created again since its page was shown."""
    if topic_id and topic_id != str((await topic_view(access.cluster, name)).id):
        raise InvalidFormError(
            f"topic {name} was deleted and created again after this page was shown; nothing was changed: load it again"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDeletion:
    """Which records are deleted: those below an offset in each partition."""

    before: Mapping[TopicPartition, int]
    records: int
    """Offsets that go."""

    @property
    def partitions(self) -> int:
        """Partitions that lose records."""
        return len(self.before)

    @property
    def lines(self) -> str:
        """As `parse_points` reads them: exactly what was shown is deleted."""
        return write_points(self.before)


def write_points(points: Mapping[TopicPartition, int]) -> str:
    """As `parse_points` reads them."""
    return "\n".join(f"{each.partition},{offset}" for each, offset in points.items())


def parse_points(topic: str, lines: str) -> dict[TopicPartition, int]:
    """The offset in each partition up to which a preview counted, from lines of `partition,offset`. Raises
    `InvalidFormError`."""
    before: dict[TopicPartition, int] = {}
    for line in lines.split():
        found = _POINT.fullmatch(line)
        if found is None:
            raise InvalidFormError(f"{line[:80]!r} is not partition,offset")
        before[TopicPartition(topic, int(found[1]))] = int(found[2])
    if not before:
        raise InvalidFormError(f"{topic}: the form names no offsets; load its page again")
    return before


async def plan_deletion(
    access: Access, topic: str, bounds: Mapping[TopicPartition, tuple[int, int]], before: str, now_ms: int
) -> RecordDeletion:
    """The records before a position, such as an offset, a time or `end`. Raises `BadPositionError`."""
    places = await resolve(access.cluster, parse_position(before, now_ms), bounds)
    wanted = {each: offset for each, offset in places.items() if offset > bounds[each][0]}
    return RecordDeletion(before=wanted, records=sum(offset - bounds[each][0] for each, offset in wanted.items()))


async def delete_records(access: Access, topic: str, lines: str, topic_id: str = "") -> None:
    """Deletes the records below the offsets of a plan, if the topic is the one with this id; "" for any."""
    before = parse_points(topic, lines)
    details = {"before": {str(each.partition): offset for each, offset in before.items()}}
    async with access.change("delete records of topic", topic, details):
        await check_id(access, topic, topic_id)
        await access.admin().delete_records(before)
    forget_start_offsets(access)
