"""Decides which companion topics a topic with queue configs has, and how they follow it. Pure.

A companion is marked by two configs that only the controller sets. It has the partitions of its topic on the same
brokers, so that the leader of a partition usually also leads those of its companions, and takes over the configs about
durability. Companions of consumer groups are created when a client first asks for them. A companion stays when its
feature is disabled, since it may hold records; it is deleted with its topic. The dead-letter topic is never deleted
with it, may be shared by several topics, and may be an ordinary topic.
"""

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from ottla.controller.decisions import ItemRefusedError
from ottla.controller.recovery_state import KEEP_EVERYTHING
from ottla.controller.topic_creation import creation
from ottla.controller.topic_names import collision_key, fault_of_name
from ottla.env.ports import Random
from ottla.metadata.configs.queue_settings import CompanionMark, QueueSettings, queue_settings_of
from ottla.metadata.configs.topic_configs import COMPANION_KIND, COMPANION_OF, CONTROLLER_CONFIGS, LONG_MAX_TEXT
from ottla.metadata.image import INTERNAL_TOPICS, NO_LEADER, ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import (
    ConfigsRecord,
    TopicRecord,
    encode,
    partition_key,
    partition_record,
    topic_configs_key,
    topic_key,
)
from ottla.metadata.store import Check, Operation, Put
from ottla.model.base64_ids import new_id
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidConfigError
from ottla.model.ids import LeaderEpoch
from ottla.model.queue_names import (
    PARKING_KINDS,
    CompanionKind,
    delayed_topic,
    half_checks_topic,
    half_topic,
    redelivery_topic,
    retry_topic,
)

_ENABLED_BY: Final[Mapping[CompanionKind, str]] = {
    CompanionKind.DELAYED: "ottla.delay.enable",
    CompanionKind.RETRY: "ottla.retry.enable",
    CompanionKind.REDELIVERY: "ottla.retry.enable",
    CompanionKind.HALF: "ottla.half.enable",
    CompanionKind.HALF_CHECKS: "ottla.half.enable",
}
_RETRY: Final = ".retry"
_REDELIVERY: Final = ".redelivery"
_ENABLED_BY_SUFFIX: Final = {f".{kind.value}": config for kind, config in _ENABLED_BY.items()}
"""The configs by how the names of companions end."""

_ANY_RECORD: Final[Mapping[str, str]] = {
    "max.message.bytes": str(2**31 - 1),
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": LONG_MAX_TEXT,
    "message.timestamp.after.max.ms": LONG_MAX_TEXT,
}
"""Records keep their timestamp, however old it is, and may become larger by the headers that the broker adds."""
_UNLIMITED: Final[Mapping[str, str]] = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_DURABILITY: Final = ("min.insync.replicas", "unclean.leader.election.enable", "flush.messages", "flush.ms")
_LIMITS: Final = ("retention.ms", "retention.bytes")


class Companion(NamedTuple):
    """A companion that a topic needs."""

    name: str
    kind: CompanionKind


class GroupCompanions(NamedTuple):
    """The companions of a topic for one consumer group."""

    topic: str
    group: str

    @property
    def both(self) -> tuple[Companion, Companion]:
        """Where records are handed back, and where they return."""
        return (
            Companion(retry_topic(self.topic, self.group), CompanionKind.RETRY),
            Companion(redelivery_topic(self.topic, self.group), CompanionKind.REDELIVERY),
        )


class ReservedName(NamedTuple):
    """The topic whose companion a name belongs to, and the config of that topic which enables the queue."""

    topic: str
    config: str


def mark_of(topic: TopicImage) -> CompanionMark | None:
    """The mark of a companion; None for other topics."""
    if COMPANION_OF not in topic.configs:
        return None
    settings = queue_settings_of(topic.configs)
    return None if settings is None else settings.companion


def companions_by_topic(image: ClusterImage) -> dict[str, list[TopicImage]]:
    """The existing companions of every topic that has some."""
    found: dict[str, list[TopicImage]] = {}
    for each in image.topics.values():
        mark = mark_of(each)
        if mark is not None:
            found.setdefault(mark.topic, []).append(each)
    return found


def needed_companions(topic: str, settings: QueueSettings | None) -> list[Companion]:
    """The companions that a topic with these settings has from the beginning. Raises ItemRefusedError."""
    if settings is None or settings.companion is not None:
        return []
    if topic in INTERNAL_TOPICS:
        raise ItemRefusedError(ErrorCode.INVALID_CONFIG, f"topic {topic!r} is an internal topic; it cannot have queues")
    candidates = [
        Companion(delayed_topic(topic), CompanionKind.DELAYED),
        Companion(half_topic(topic), CompanionKind.HALF),
        Companion(half_checks_topic(topic), CompanionKind.HALF_CHECKS),
        Companion(settings.dead_letters_of(topic), CompanionKind.DEAD_LETTERS),
    ]
    return [each for each in candidates if settings.enables(each.kind)]


def dead_letter_cycle(topics: Mapping[str, TopicImage], topic: str, settings: QueueSettings | None) -> list[str]:
    """The topics through which an expired record of a topic with these settings would return to it; empty if none.

    A dead letter that expires in a topic with a TTL moves on to the dead-letter topic of that topic.
    """
    path = [topic]
    while settings is not None and settings.has_ttl and settings.dead_letter_name:
        name = settings.dead_letter_name
        if name == topic:
            return [*path, name]
        if name in path:
            return []
        path.append(name)
        found = topics.get(name)
        settings = queue_settings_of(found.configs) if found is not None else None
    return []


def check_no_dead_letter_cycle(topics: Mapping[str, TopicImage], topic: str, settings: QueueSettings | None) -> None:
    """Raises ItemRefusedError if expired records of a topic with these settings would return to it."""
    cycle = dead_letter_cycle(topics, topic, settings)
    if len(cycle) > 2:  # A topic that names itself is refused as a companion.
        raise ItemRefusedError(
            ErrorCode.INVALID_CONFIG,
            f"expired records of topic {topic!r} would return to it as dead letters: {' -> '.join(cycle)}",
        )


def group_companions(topics: Mapping[str, TopicImage], name: str) -> GroupCompanions | None:
    """The topic and the group whose companion would have this name, if the topic has enabled retry.

    Both may contain dots: if several topics match, the one with the longest name counts.
    """
    suffix = next((each for each in (_RETRY, _REDELIVERY) if name.endswith(each)), None)
    if suffix is None:
        return None
    stem = name.removesuffix(suffix)
    end = stem.rfind(".")
    while end > 0:
        topic, group = topics.get(stem[:end]), stem[end + 1 :]
        settings = queue_settings_of(topic.configs) if topic is not None and group else None
        if settings is not None and settings.retry_enable:
            return GroupCompanions(stem[:end], group)
        end = stem.rfind(".", 0, end)
    return None


def reserved_by(topics: Mapping[str, TopicImage], name: str) -> ReservedName | None:
    """The existing topic that would have a companion of this name if it enabled the queue; None if there is none.

    Companions have no companions of their own, and neither have internal topics.
    """
    stem, dot, last = name.rpartition(".")
    config = _ENABLED_BY_SUFFIX.get(dot + last)
    if config is None:
        return None
    candidates = [stem]
    if dot + last in (_RETRY, _REDELIVERY):
        words = stem.split(".")
        candidates = [".".join(words[:count]) for count in range(len(words) - 1, 0, -1)]
    for candidate in candidates:
        found = topics.get(candidate)
        if found is not None and candidate not in INTERNAL_TOPICS and mark_of(found) is None:
            return ReservedName(candidate, config)
    return None


def resembled_by(name: str) -> ReservedName | None:
    """The topic whose companion would have this name, whether it exists or not; None if no companion is named so."""
    stem, dot, last = name.rpartition(".")
    config = _ENABLED_BY_SUFFIX.get(dot + last)
    if dot + last in (_RETRY, _REDELIVERY):
        stem = stem.rpartition(".")[0]
    return ReservedName(stem, config) if config is not None and stem else None


def companion_configs(topic: str, kind: CompanionKind, configs: Mapping[str, str]) -> dict[str, str]:
    """The configs of a companion of a topic with these configs of its own, apart from those that operators add."""
    made = {COMPANION_OF: topic, COMPANION_KIND: kind.value, **_ANY_RECORD}
    if kind in PARKING_KINDS or kind is CompanionKind.DEAD_LETTERS:
        made |= _UNLIMITED
        followed: tuple[str, ...] = _DURABILITY
    else:
        made["cleanup.policy"] = "delete"
        followed = (*_DURABILITY, *_LIMITS)
    return made | {name: configs[name] for name in followed if name in configs}


def _managed(kind: CompanionKind) -> frozenset[str]:
    """The configs of a companion that follow its topic; those of a dead-letter topic are the operator's."""
    if kind is CompanionKind.DEAD_LETTERS:
        return CONTROLLER_CONFIGS
    return frozenset({*CONTROLLER_CONFIGS, *_ANY_RECORD, *_UNLIMITED, *_DURABILITY})


def changed_configs(image: ClusterImage, topic: TopicImage, wanted: Mapping[str, str]) -> dict[str, str]:
    """The configs that a topic gets if a client asks for `wanted`: a companion's mark and what follows its topic stay.

    Raises InvalidConfigError if `wanted` has other values for those.
    """
    mark = mark_of(topic)
    if mark is None:
        return _changed_ordinary(topic, wanted)
    owner = image.topics.get(mark.topic)
    if owner is None or mark.kind is CompanionKind.DEAD_LETTERS:
        made = {name: topic.configs[name] for name in (COMPANION_OF, COMPANION_KIND)}
    else:
        made = companion_configs(mark.topic, mark.kind, owner.configs)
    managed = made.keys() if owner is None else _managed(mark.kind)
    for name in sorted(managed & wanted.keys()):
        if wanted[name] != made.get(name):
            where = "" if name in CONTROLLER_CONFIGS else f"; change it on topic {mark.topic} if it applies there"
            raise InvalidConfigError(
                f"{name} of {topic.name}, a companion of topic {mark.topic}, is set by the controller{where}"
            )
    return {name: value for name, value in wanted.items() if name not in managed} | made


def _changed_ordinary(topic: TopicImage, wanted: Mapping[str, str]) -> dict[str, str]:
    """A recovered topic loses its mark with the first change: from then on its configs are a client's."""
    marked = {name: value for name, value in topic.configs.items() if name in CONTROLLER_CONFIGS}
    asked = {name: value for name, value in wanted.items() if marked.get(name) != value}
    check_client_configs(asked)
    return dict(topic.configs) if {**asked, **marked} == topic.configs else asked


def check_client_configs(configs: Iterable[str]) -> None:
    """Raises InvalidConfigError for configs that only the controller may set."""
    reserved = sorted(CONTROLLER_CONFIGS.intersection(configs))
    if reserved:
        raise InvalidConfigError(f"{reserved[0]} is set by the controller only; enable a queue on the topic instead")


def recovered_companions(image: ClusterImage, topic: str, configs: Mapping[str, str]) -> list[Companion]:
    """Topics that were companions of a topic before the metadata was lost and recovered, if it gets these configs.

    A recovered topic has lost the mark of a companion. It is recognised by its name, as long as it has the configs that
    recovery gave it, and as many partitions as the topic. An ordinary topic is never adopted: the records in it were
    accepted without the permission to write to the topic where they would be delivered.
    """
    settings, owner = queue_settings_of(configs), image.topics[topic]
    if settings is None or settings.companion is not None:
        return []
    topics = {**image.topics, topic: replace(owner, configs=configs)} if settings.retry_enable else {}
    needed = dict(needed_companions(topic, settings))
    found = []
    for each in image.topics.values():
        if each.configs != KEEP_EVERYTHING or len(each.partitions) != len(owner.partitions):
            continue
        group = group_companions(topics, each.name)
        kinds = needed if group is None or group.topic != topic else dict(group.both)
        kind = kinds.get(each.name, CompanionKind.DEAD_LETTERS)
        if kind is not CompanionKind.DEAD_LETTERS:
            found.append(Companion(each.name, kind))
    return found


def check_group_names(topics: Mapping[str, TopicImage], topic: TopicImage, recovered: Iterable[Companion] = ()) -> None:
    """Refuses retry on a topic if ordinary topics have names of its group companions: clients would produce to them.

    `topics` are all topics; `topic` has the configs that it is about to have. Raises ItemRefusedError.
    """
    settings = queue_settings_of(topic.configs)
    if settings is None or not settings.retry_enable:
        return
    known = {each.name for each in recovered}
    after = ChainMap({topic.name: topic}, dict(topics))
    for each in topics.values():
        if not each.name.startswith(f"{topic.name}.") or each.name in known or mark_of(each) is not None:
            continue
        group = group_companions(after, each.name)
        if group is not None and group.topic == topic.name:
            raise ItemRefusedError(
                ErrorCode.INVALID_CONFIG,
                f"ottla.retry.enable of topic {topic.name!r} needs the topic {each.name!r} for consumer "
                f"group {group.group!r}, but another topic has that name; delete it or use another topic",
            )


class CompanionDrafts:
    """Plans the companions of topics within one decision, which may create several topics.

    `names` has the name of every topic, existing or about to be created, by its collision key, and is kept up to date.
    """

    def __init__(self, image: ClusterImage, names: dict[str, str], random: Random) -> None:
        self._image = image
        self._names = names
        self._random = random
        self._kinds: dict[str, CompanionKind] = {}
        self.ids: dict[str, UUID] = {}
        """Of the companions that this decision creates."""

    def missing(self, topic: str, companions: Iterable[Companion]) -> list[Companion]:
        """Those companions of a topic that do not exist. Raises ItemRefusedError if one of them cannot be created."""
        return [each for each in companions if not self._exists(topic, each)]

    def create(
        self,
        topic: str,
        configs: Mapping[str, str],
        companions: Iterable[Companion],
        partitions: Sequence[PartitionImage],
    ) -> list[Operation]:
        """Creates `missing` companions of a topic with these configs; recovered ones get their configs again."""
        operations: list[Operation] = []
        for name, kind in companions:
            found = self._image.topics.get(name)
            if found is not None:
                operations += _configured(self._image, found, companion_configs(topic, kind, configs))
                continue
            self._names[collision_key(name)] = name
            self._kinds[name] = kind
            self.ids[name] = new_id(self._random.randbytes)
            operations += creation(name, self.ids[name], partitions, companion_configs(topic, kind, configs))
        return operations

    def _exists(self, topic: str, companion: Companion) -> bool:
        """Whether the companion exists already; refuses a name that it cannot have."""
        name, kind = companion
        why = f"{_ENABLED_BY.get(kind, 'the dead-letter topic')} of topic {topic!r} needs the topic {name!r}"
        if name in INTERNAL_TOPICS:
            raise ItemRefusedError(ErrorCode.INVALID_CONFIG, f"{why}, but that is an internal topic")
        if name == topic:
            raise ItemRefusedError(ErrorCode.INVALID_CONFIG, f"topic {topic!r} cannot be its own dead-letter topic")
        fault = fault_of_name(name)
        if fault is not None:
            raise ItemRefusedError(ErrorCode.INVALID_CONFIG, f"{why}, but {fault}")
        other = self._names.get(collision_key(name))
        if other is None:
            return False
        found = self._image.topics.get(name)
        mark = mark_of(found) if found is not None else None
        if other != name:
            problem = f"topic {other!r} has a colliding name: metrics do not distinguish '.' and '_'"
        elif kind is CompanionKind.DEAD_LETTERS:
            taken = self._kinds.get(name) or (mark.kind if mark is not None else CompanionKind.DEAD_LETTERS)
            if taken is CompanionKind.DEAD_LETTERS:
                return True
            problem = f"that is a companion of kind {taken.value}; name another topic"
        elif mark == CompanionMark(topic, kind):
            return True
        else:
            problem = "another topic has that name; delete it or use another topic"
        raise ItemRefusedError(ErrorCode.INVALID_CONFIG, f"{why}, but {problem}")


def beside(image: ClusterImage, partition: PartitionImage) -> PartitionImage:
    """A partition without records on the brokers of an existing one, led by the same broker where that is possible."""
    replicas = tuple(broker for broker in partition.replicas if broker not in partition.removing)
    alive = tuple(broker for broker in replicas if broker in image.brokers)
    if not alive:
        return PartitionImage(replicas=replicas, isr=replicas, leader=NO_LEADER, leader_epoch=LeaderEpoch(0))
    leader = partition.leader if partition.leader in alive else alive[0]
    return PartitionImage(replicas=replicas, isr=alive, leader=leader, leader_epoch=LeaderEpoch(0))


def growth(
    image: ClusterImage, companions: Iterable[TopicImage], first: int, partitions: Sequence[PartitionImage]
) -> list[Operation]:
    """Adds partitions to the companions of a topic that gets `partitions` after its `first` ones.

    A companion that has more, such as a dead-letter topic that an operator has grown, stays as it is.
    """
    operations: list[Operation] = []
    for companion in companions:
        have = len(companion.partitions)
        added = [(first + at, each) for at, each in enumerate(partitions) if first + at >= have]
        if not added or have < first:
            continue
        key = topic_key(companion.name)
        operations.append(Put(key, encode(TopicRecord(id=companion.id)), image.revision_of(key)))
        operations += [
            Put(partition_key(companion.name, index), encode(partition_record(each)), 0) for index, each in added
        ]
    return operations


def followed_configs(
    image: ClusterImage, topic: str, configs: Mapping[str, str], companions: Iterable[TopicImage]
) -> list[Operation]:
    """Changes the configs of a topic's companions that follow the topic, which is about to have these configs."""
    operations: list[Operation] = []
    for companion in companions:
        mark = mark_of(companion)
        if mark is None or mark.kind is CompanionKind.DEAD_LETTERS:
            continue
        managed = _managed(mark.kind)
        own = {name: value for name, value in companion.configs.items() if name not in managed}
        wanted = own | companion_configs(topic, mark.kind, configs)
        if wanted != companion.configs:
            operations += _configured(image, companion, wanted)
    return operations


def _configured(image: ClusterImage, topic: TopicImage, configs: dict[str, str]) -> list[Operation]:
    name, key = topic_key(topic.name), topic_configs_key(topic.name)
    return [
        Check(name, image.revision_of(name)),
        Put(key, encode(ConfigsRecord(configs=configs)), image.revision_of(key)),
    ]


def dead_letter_users(image: ClusterImage) -> dict[str, list[str]]:
    """The topics whose dead letters go to a topic, by the name of that topic."""
    users: dict[str, list[str]] = {}
    for each in image.topics.values():
        settings = queue_settings_of(each.configs) if each.configs else None
        if settings is not None and settings.companion is None and settings.enables(CompanionKind.DEAD_LETTERS):
            users.setdefault(settings.dead_letters_of(each.name), []).append(each.name)
    return users


def fault_of_deletion(
    image: ClusterImage, topic: TopicImage, deleted: Set[str], users: Mapping[str, Sequence[str]]
) -> str | None:
    """Why a topic must not be deleted together with the other topics `deleted`; None if it may be.

    `users` are the image's `dead_letter_users`.
    """
    for user in users.get(topic.name, ()):
        if user not in deleted:
            return f"topic {topic.name!r} is the dead-letter topic of topic {user!r}; disable the queues there first"
    mark = mark_of(topic)
    if mark is None or mark.kind is CompanionKind.DEAD_LETTERS or mark.topic in deleted:
        return None
    owner = image.topics.get(mark.topic)
    settings = queue_settings_of(owner.configs) if owner is not None else None
    if settings is None or not settings.enables(mark.kind):
        return None
    if mark.kind is CompanionKind.RETRY:
        return None
    where = f"set {_ENABLED_BY[mark.kind]}=false there first"
    if mark.kind is CompanionKind.REDELIVERY:
        partner = topic.name.removesuffix(_REDELIVERY) + _RETRY
        if partner not in image.topics or partner in deleted:
            return None
        where = f"delete {partner!r}, which deletes both"
    return f"topic {topic.name!r} belongs to topic {mark.topic!r}; {where}"


def deleted_with(topic: TopicImage, companions: Mapping[str, Sequence[TopicImage]]) -> list[TopicImage]:
    """The companions that are deleted with a topic: its own, and with the place where a consumer group hands records
    back also the one where they return. `companions` are the image's `companions_by_topic`."""
    mark = mark_of(topic)
    if mark is not None and mark.kind is CompanionKind.RETRY:
        partner = topic.name.removesuffix(_RETRY) + _REDELIVERY
        return [each for each in companions.get(mark.topic, ()) if each.name == partner]
    return following(companions.get(topic.name, ()))


def following(companions: Iterable[TopicImage]) -> list[TopicImage]:
    """The companions that move with their topic and are deleted with it: all except dead letters."""
    return [
        each
        for each in companions
        if (mark := mark_of(each)) is not None and mark.kind is not CompanionKind.DEAD_LETTERS
    ]
